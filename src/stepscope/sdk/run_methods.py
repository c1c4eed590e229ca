"""Methods of a run beside recording: tags, notes and name; typed points, calls at its end, counts and warnings."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.model import names
from stepscope.model.records import METRIC, Instrument
from stepscope.model.run_description import LONGEST_NAME, LONGEST_NOTES, MAX_TAGS, read_tags
from stepscope.sdk import values
from stepscope.sdk.attributes import clean, is_known
from stepscope.sdk.context import Mark, pack_any, text_of
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.overhead import Overhead
from stepscope.sdk.periodic import PeriodicWork
from stepscope.sdk.positions import Positions
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.settings import Settings
from stepscope.sdk.tensors import Refused, Row, step_number

if TYPE_CHECKING:
    from stepscope.sdk.checkpoints import Artifact, Checkpoint, Checkpoints
    from stepscope.sdk.remote_control import LiveSettings, RemoteControl
    from stepscope.sdk.sample_records import Sampled, Table


class Described(Protocol):
    """The parts of a run that are used here."""

    name: str | None
    outcomes: Outcomes
    status: str

    def event(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """Record that something happened."""


def described(settings: Settings) -> dict[str, Any]:
    """Return the description from the settings as attributes of the first event."""
    description = {"tags": dict(settings.tags), "notes": settings.notes, "group": settings.group}
    description |= {"job_type": settings.job_type, "parent": settings.parent}
    began = {} if settings.from_step is None else {"from_step": settings.from_step}
    return {**{key: value for key, value in description.items() if value}, **began}


def tag(run: Described, /, *tags: Any, **named: Any) -> None:
    """Add or replace tags: `run.tag("baseline", team="red")`; a list or a dict of tags is taken as by `init`.

    Later changes on the page or with a command override these.
    """
    try:
        _edit(run, {"tags": {**read_tags(tags), **read_tags(named)}})
    except BaseException as error:
        pass_on(error)
        run.outcomes.reject("tag", type(error).__name__)


def untag(run: Described, /, *names: Any, **unknown: Any) -> None:
    """Remove tags from the run, by name."""
    run.outcomes.reject_arguments("untag", unknown)
    try:
        _edit(run, {"tags": dict.fromkeys(read_tags(names))})
    except BaseException as error:
        pass_on(error)
        run.outcomes.reject("untag", type(error).__name__)


def note(run: Described, /, text: str | None = None, **unknown: Any) -> None:
    """Replace the notes of the run."""
    run.outcomes.reject_arguments("note", unknown)
    if text is None:
        run.outcomes.reject("note", "no text was given")
        return
    _edit(run, {"notes": text_of(text)[:LONGEST_NOTES]})


def rename(run: Described, /, name: str | None = None, **unknown: Any) -> None:
    """Give the run another name; its id stays."""
    run.outcomes.reject_arguments("rename", unknown)
    wanted = "" if name is None else text_of(name).strip()[:LONGEST_NAME]
    if not wanted:
        run.outcomes.reject("rename", "a name must not be empty")
        return
    run.name = wanted
    _edit(run, {"name": wanted})


def _edit(run: Described, change: dict[str, Any]) -> None:
    tags = change.get("tags")
    if tags is not None and not 0 < len(tags) <= MAX_TAGS:
        if tags:
            run.outcomes.reject("tag", f"more than {MAX_TAGS} tags at once")
        return
    run.event(names.EVENT_EDITED, change)


class Extended(Protocol):
    """The parts of a run that are used here."""

    outcomes: Outcomes
    overhead: Overhead
    periodic: PeriodicWork
    positions: Positions
    recorder: Recorder

    @property
    def mark(self) -> Mark:
        """The current step of the calling code."""

    @property
    def remote_control(self) -> "RemoteControl":
        """What users ask of this process."""

    @property
    def checkpoints(self) -> "Checkpoints":
        """The checkpoints that this process records."""


def on_stop(run: Extended, call: Callable[[], object], /) -> Callable[[], bool]:
    """Have `call` called once when a user asks the run to stop, on a thread of its own; at once if one has.

    The returned function cancels this and returns whether it was in time. An exception of `call` is counted. Forked
    children do not inherit the call.
    """
    return run.remote_control.on_stop(call)


def live(run: Extended, /, *unnamed: Any, **settings: Any) -> "LiveSettings":
    """Declare settings that users may change while the program runs, and return all of them: `live.lr_scale`.

    A setting is a finite number, a text, True or False, and keeps its type. One that is declared already keeps its
    value, so this may be called in a loop. Each change is recorded as an event. A restart begins with what it declares.
    """
    if unnamed:
        run.outcomes.reject("live", "a setting needs a name", len(unnamed))
    return run.remote_control.declare(settings)


def checkpoint(run: Extended, path: Any, /, step: int | None = None, **attrs: Any) -> "Checkpoint":
    """Record that a checkpoint was saved at a path; in `with`, the block that saves it is timed.

    Size and hashes of its files are added later, by a thread of its own; nothing is uploaded. Without a step, the
    current one is used. If the block raises, no checkpoint is recorded. Never raises itself and never waits.
    """
    return run.checkpoints.add(path, _mark(run, "checkpoint", step), attrs)


def _mark(run: Extended, call: str, step: Any) -> Mark:
    """Return the step of a call, else the current one."""
    try:
        return run.mark if step is None else Mark(step_number(step), None)
    except Refused as reason:
        run.outcomes.reject(call, str(reason))
        return run.mark


def artifact(
    run: Extended,
    source: Any,
    /,
    name: Any = None,
    kind: Any = "",
    *,
    copy: bool = False,
    step: int | None = None,
    **attrs: Any,
) -> "Artifact | None":
    """Record files that the run made for others: a path, a reference such as `s3://bucket/data`, or a dict of these.

    Without a name, that of the file or folder is used. Size and hashes are added later, by a thread of its own; nothing
    is uploaded, unless `copy` is set: then the files are kept beside the journal, and shipped, as logged files are.
    Never raises and never waits; None when nothing can be recorded.
    """
    from stepscope.sdk.checkpoints import Artifact, place_of  # imported on use

    try:
        if name is None:
            name = kind if isinstance(source, Mapping) else place_of(source).rstrip("/").rpartition("/")[2]
        named, word = text_of(name)[:LONGEST_NAME] or "artifact", text_of(kind)[:LONGEST_NAME]
        made = Artifact(source, _mark(run, "artifact", step), attrs, named, word, copy=bool(copy))
        run.checkpoints.add_artifact(made)
    except BaseException as error:
        pass_on(error)
        run.outcomes.reject("artifact", type(error).__name__)
        return None
    return made


def use(run: Extended, what: Any, /, kind: Any = "", **attrs: Any) -> None:
    """Record that the run uses an artifact: what `run.artifact` returned, a name (`model`, `model:v2`), or a path."""
    run.checkpoints.note_used(what, text_of(kind)[:LONGEST_NAME], attrs)


def resumed_from(run: Extended, path: Any = None, /, step: int | None = None, **unknown: Any) -> None:
    """Record that this attempt continues from the checkpoint at a path, which may be of another run."""
    run.outcomes.reject_arguments("resumed_from", unknown)
    if path is None:
        run.outcomes.reject("resumed_from", "no path was given")
        return
    run.checkpoints.note_loaded(path, step)


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
        flat, held, media = values.flatten(numbers, run.outcomes.reject)
        for key, _ in media:
            run.outcomes.reject(key, "not a number")
        if not flat:
            return
        row = Row(time.time_ns(), *mark, None, flat, clean(attrs), instrument)
        if held:
            run.periodic.hold(row)
        else:
            packed = pack_any((METRIC, *row))
            run.recorder.put(packed if is_known(row.attrs) else Unmasked(packed))
    except Refused as reason:
        run.outcomes.reject("measure", str(reason))
    except BaseException as error:
        pass_on(error)
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


def on_position(run: Extended, call: Callable[[], Mapping[str, Any]], /) -> None:
    """Have `call` add attributes to each report of where this process stands still; it runs on the flusher's thread."""
    run.positions.details.append(call)


def count(run: Extended, outcome: str, kind: str, reason: str | None = None, number: int = 1) -> None:
    """Add to a counter of the run, such as `rejected/metrics/no step`; the counters are recorded every 5 s."""
    run.outcomes.add(outcome, kind, reason, number)


def reject(run: Extended, key: str, reason: str, number: int = 1) -> None:
    """Count values that cannot be kept as rejected, and warn of it once for each key."""
    run.outcomes.reject(key, reason, number)


def warn(run: Extended, text: str, *, about: str | None = None) -> None:
    """Print a warning from the flusher's thread, once for each subject, which is the text itself unless given."""
    run.outcomes.notice("notice", text if about is None else about, text)


def affords(run: Extended) -> bool:
    """Return whether optional work may be done now: what Stepscope takes is below the `overhead_budget`.

    Optional is what nobody asked for record by record, such as checks and timings of an integration.
    """
    return run.overhead.affords()


def add_overhead(run: Extended, part: str, seconds: float, *, optional: bool = True) -> None:
    """Add the seconds that some work took, which are recorded as the share `stepscope/overhead/PART`."""
    run.overhead.add(part, seconds, optional=optional)


def sample(
    run: "Sampled", row: Any = None, /, *, step: int | None = None, table: str = "samples", **columns: Any
) -> None:
    """Record a row of a table at a step: `run.sample(prompt=..., completion=..., reward=...)`.

    The step is the given one, else the current one. Columns are texts, numbers, lists or dicts; those named `step` or
    `table` are given in a dict, the first argument. Texts are captured here and masked and written by the flusher.
    Never raises: what cannot be recorded is counted as rejected.
    """
    from stepscope.sdk import sample_records  # imported on use

    sample_records.sample(run, row, step, table, columns)


def put_table(run: "Sampled", category: str | None, key: str, table: "Table", mark: Mark) -> None:
    """Record the rows of a table that was given to `log`."""
    from stepscope.sdk import sample_records  # imported on use

    sample_records.put_table(run, f"{category}/{key}" if category else key, table, mark)
