"""A run that records nothing: what `init` returns when Stepscope is disabled."""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from opentelemetry import trace

from stepscope.model.goodput_sums import Sums, conclude
from stepscope.sdk.context import NO_MARK, Mark
from stepscope.sdk.outcomes import NOTHING_LEFT
from stepscope.sdk.remote_control import LiveSettings
from stepscope.sdk.run import Run
from stepscope.sdk.run_config import RunConfig
from stepscope.sdk.spans import Span

F = TypeVar("F", bound=Callable[..., Any])


class OffSpan(Span):
    """A span that is not recorded: every call does nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        self.duration = 0

    def __enter__(self) -> "OffSpan":
        return self

    def __exit__(self, *raised: Any) -> None:
        return None

    @property
    def packed_ids(self) -> None:
        """None: it has no ids."""
        return None

    def get_span_context(self) -> trace.SpanContext:
        """Return the invalid context: this span has no ids."""
        return trace.INVALID_SPAN_CONTEXT


OFF_SPAN = OffSpan()


def _off(call: F, answer: Any = None) -> F:
    """Return a method with the signature of one of Run's that does nothing but return an answer."""

    @functools.wraps(call)
    def off(self: Run, *args: Any, **given: Any) -> Any:
        return answer

    return cast(F, off)


def _off_live(call: F) -> F:
    """Return a `live` that returns the settings as they are declared: nobody changes them."""

    @functools.wraps(call)
    def off(self: Run, *args: Any, **settings: Any) -> LiveSettings:
        found = LiveSettings(lambda key, reason: None)
        found.__dict__.update(settings)
        return found

    return cast(F, off)


class OffRun(Run):
    """A run whose every call returns at once."""

    def __init__(self) -> None:
        self.id = "disabled"
        self.project = "disabled"
        self.name = None
        self.rank = 0
        self._config = RunConfig(None, lambda changes: None, lambda key, reason: None)
        self.status = "disabled"

    @property
    def home(self) -> Path:
        """A folder that does not exist."""
        return Path("disabled")

    @property
    def url(self) -> str | None:
        """No page shows this run."""
        return None

    @property
    def mark(self) -> Mark:
        """No step."""
        return NO_MARK

    @property
    def stop_requested(self) -> bool:
        """Nobody can ask this run to stop."""
        return False

    @property
    def overhead_budget(self) -> float:
        """Nothing is to be spent."""
        return 0.0

    live = _off_live(Run.live)
    checkpoint = _off(Run.checkpoint, contextlib.nullcontext())
    put_media = _off(Run.put_media)
    artifact = _off(Run.artifact)
    use = _off(Run.use)
    resumed_from = _off(Run.resumed_from)
    log = _off(Run.log)
    log_system = _off(Run.log_system)
    measure = _off(Run.measure)
    step = _off(Run.step, OFF_SPAN)
    span = _off(Run.span, OFF_SPAN)
    event = _off(Run.event)
    alert = _off(Run.alert)
    exception = _off(Run.exception)
    tag = _off(Run.tag)
    untag = _off(Run.untag)
    note = _off(Run.note)
    rename = _off(Run.rename)
    sample = _off(Run.sample)
    on_finish = _off(Run.on_finish, lambda: False)
    on_stop = _off(Run.on_stop, lambda: False)
    on_position = _off(Run.on_position)
    count = _off(Run.count)
    reject = _off(Run.reject)
    warn = _off(Run.warn)
    affords = _off(Run.affords, False)
    add_overhead = _off(Run.add_overhead)
    goodput = _off(Run.goodput, conclude(Sums()))
    flush = _off(Run.flush, NOTHING_LEFT)
    finish = _off(Run.finish, NOTHING_LEFT)
    undelivered = _off(Run.undelivered, 0)
    after_fork = _off(Run.after_fork)

    def __reduce__(self) -> tuple[Any, ...]:
        return OffRun, ()

    def __repr__(self) -> str:
        return "<Run disabled>"
