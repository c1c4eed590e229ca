"""What integrations need of a run beside recording: typed points, a call at its end, counts and warnings."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from stepscope.model.records import METRIC, Instrument
from stepscope.sdk import values
from stepscope.sdk.attributes import clean
from stepscope.sdk.context import Mark, pack_any, text_of
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.periodic import PeriodicWork
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.resolve import Row
from stepscope.sdk.scalars import Refused, step_number


class Extended(Protocol):
    """The parts of a run that are used here."""

    outcomes: Outcomes
    periodic: PeriodicWork
    recorder: Recorder

    @property
    def mark(self) -> Mark:
        """The step the calling code is in."""


def measure(
    run: Extended,
    /,
    numbers: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    instrument: Instrument | None = None,
    *,
    step: int | None = None,
    axis: str | None = None,
) -> None:
    """Record points with attributes and an instrument, which `log` has no room for; a gauge when none is given.

    Values are those of `log`, or a distribution of `stepscope.model.records`. Without a step, the current one is used.
    Never raises: what cannot be recorded is counted as rejected.
    """
    try:
        mark = run.mark if step is None else Mark(step_number(step), None if axis is None else text_of(axis))
        flat, held = values.flatten(numbers, run.outcomes.reject)
        if not flat:
            return
        row = Row(time.time_ns(), *mark, None, flat, clean(attrs), instrument)
        if held:
            run.periodic.hold(row)
        else:
            run.recorder.put(pack_any((METRIC, *row)))
    except Refused as reason:
        run.outcomes.reject("measure", str(reason))
    except Exception as error:
        run.outcomes.reject("measure", type(error).__name__)


def on_finish(run: Extended, call: Callable[[], object], /) -> Callable[[], bool]:
    """Have `call` called once when the run finishes, before its last records are written; the newest is called first.

    The returned function cancels this and returns whether it was in time. An exception of `call` is counted. Forked
    children do not inherit the call.
    """
    closing = run.periodic.closing
    closing.append(call)

    def cancel() -> bool:
        try:
            closing.remove(call)
        except ValueError:
            return False
        return True

    return cancel


def count(run: Extended, outcome: str, kind: str, reason: str | None = None, number: int = 1) -> None:
    """Add to a counter of the run, such as `rejected/metrics/no step`; the counters are recorded every 5 s."""
    run.outcomes.add(outcome, kind, reason, number)


def reject(run: Extended, key: str, reason: str, number: int = 1) -> None:
    """Count values that cannot be kept as rejected, and warn of it once for each key."""
    run.outcomes.reject(key, reason, number)


def warn(run: Extended, text: str, *, about: str | None = None) -> None:
    """Print a warning from the flusher's thread, once for each subject, which is the text itself unless given."""
    run.outcomes.notice("notice", text if about is None else about, text)
