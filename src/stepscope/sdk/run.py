"""A run as the training loop sees it: log, step, span, event, alert, finish. Nothing here raises or waits."""

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context

from stepscope.model import names
from stepscope.model.records import ALERT, EVENT, FIRST_STEP, LAST_STEP, METRIC, Instrument
from stepscope.model.run_description import LONGEST_NAME, LONGEST_NOTES, MAX_TAGS, read_tags
from stepscope.sdk import positions, values
from stepscope.sdk.attributes import clean, harmless, is_known, plain_texts, safe_text, shorten
from stepscope.sdk.context import (
    CARRIED_KEY,
    NO_MARK,
    SPAN_KEY,
    Mark,
    current,
    current_ids,
    current_mark,
    new_span_id,
    new_trace_id,
    otel_variable,
    own_ids,
    pack,
    pack_any,
    pack_numbers,
    text_of,
)
from stepscope.sdk.core import RunState, compiled, use
from stepscope.sdk.exception_records import exception_attrs, is_first_sight
from stepscope.sdk.flusher import Flusher, PeriodicWork
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.launch import Launch, new_run_id
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.outcomes import NOTHING_LEFT, Delivery, DeliveryStatus, Outcomes
from stepscope.sdk.overhead import CallTimes, Overhead
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.run_config import RunConfig
from stepscope.sdk.run_protocols import OpenSpan, PackedLink
from stepscope.sdk.settings import MAX_SECONDS, Settings
from stepscope.sdk.spans import Span, StepSpan, drop_left, open_span, open_step
from stepscope.sdk.tensors import Refused, Row, step_number
from stepscope.sdk.writer_identity import open_journal

if TYPE_CHECKING:
    from stepscope.journal.run_goodput import Folding
    from stepscope.model.goodput_sums import Goodput
    from stepscope.model.run_requests import Asked
    from stepscope.sdk.checkpoints import Artifact, Checkpoint, Checkpoints
    from stepscope.sdk.media_values.medium import Medium
    from stepscope.sdk.media_values.writer import MediaWriter
    from stepscope.sdk.remote_control import LiveSettings, RemoteControl
    from stepscope.sdk.sample_records import Table
    from stepscope.sdk.self_diagnosis import SelfDiagnosis

_time_ns = time.time_ns
new_mark = tuple.__new__
"""Creates a Mark in a third of the time that the class takes."""
_NUMBERS = frozenset((float, int, bool))
_known_category = names.CATEGORIES.get
_ADD_NOTHING = _NUMBERS | {str, bytes, type(None), dict, list, tuple, set}
"""Types for which adding a float is cheap or raises at once; other types may start a computation."""


@cache
def _sample_records() -> ModuleType:
    from stepscope.sdk import sample_records  # imported on use

    return sample_records


class Run(RunState):
    """A run. Every method may be called from any thread, before and after a fork."""

    recorder: Recorder
    active_mark: Mark | None
    last_mark: Mark | None
    open_steps: list[Mark]
    left_steps: dict[int, tuple[Mark, Any]]
    open_spans: dict[bytes, OpenSpan]
    link: PackedLink
    """The ids of the span of the whole run, to which every step links."""
    asks_to_stop = False
    stop_asked: "Asked | None" = None
    _remote_control: "RemoteControl | None" = None
    _checkpoints: "Checkpoints | None" = None
    _media: "MediaWriter | None" = None
    """Encodes what was logged beside numbers; None until there is something."""

    def __init__(
        self,
        settings: Settings,
        launch: Launch,
        config: Mapping[str, Any] | None = None,
        diagnosing: "Callable[[Run], SelfDiagnosis] | None" = None,
    ) -> None:
        self.settings = settings
        self.launch = launch
        self.id = settings.run_id or launch.run or new_run_id()
        self.project = safe_text(settings.project)
        self.name = None if settings.name is None else safe_text(settings.name)
        self.rank = launch.rank
        self._config = RunConfig(config, self._record_config, self.reject)
        self.status = "running"
        self.main = True
        self.pid = os.getpid()
        self.open_steps = []
        self.left_steps = {}
        self.open_spans = {}
        self.outcomes = Outcomes()
        self.flusher: Flusher
        self.recorder = Recorder(settings.memory_quota, self.outcomes, lambda: self.flusher.start())
        self.overhead = Overhead(settings.overhead_budget)
        self.call_times = CallTimes(self)
        self.periodic = PeriodicWork(self)
        self.positions = positions.Positions(self)
        self.periodic.collectors.append(self.positions)
        self.diagnosis = None if diagnosing is None else diagnosing(self)
        self.flusher = Flusher(
            self.recorder,
            self.outcomes,
            lambda: open_journal(self),
            interval=settings.flush_interval,
            disk_quota=settings.disk_quota,
            periodic=self.periodic,
            diagnosis=self.diagnosis,
        )
        self.finishing: list[Callable[[float, float], object]] = (
            [] if self.diagnosis is None else [self.diagnosis.close]
        )
        """Called when all is in the journal, with the deadline and the time to wait for sinks; must not raise."""
        self.delivery = Delivery(self.outcomes)
        self.elsewhere: Callable[[], Run]
        """Returns the run that replaces this one after unpickling in another process."""
        self.exit_status: Any = None
        self.failed = False
        """Whether an exception ended the main thread while other threads continued."""
        self.preempted = False
        self._plain: bool | None = None
        """Whether `sum` is used to detect plain numbers: None before the first call, False after other types."""
        self._finished = self._recorded = False
        self._folding: Folding | None = None
        own_ids()
        self.link = (new_trace_id(), new_span_id(), {})
        self.started, self.started_monotonic = _time_ns(), time.monotonic_ns()

    @property
    def home(self) -> Path:
        """The home folder of this run's journal."""
        return self.settings.home

    @property
    def url(self) -> str | None:
        """The address of this run on the page of the hub that has its home open; None while there is no such hub."""
        try:
            from stepscope.sdk.announcement import url_of  # imported on use

            return url_of(self)
        except Exception:  # nothing of ours raises into a training loop
            return None

    @property
    def config(self) -> RunConfig:
        """The settings of the run; what is assigned is recorded."""
        return self._config

    @config.setter
    def config(self, values: Any) -> None:
        if not isinstance(values, Mapping):
            self.reject("config", f"must be a dict, got {type(values).__name__}")
            return
        self._config = RunConfig(values, self._record_config, self.reject)
        self._record_config(self._config)

    def _record_config(self, changes: Mapping[str, Any]) -> None:
        self.event(names.EVENT_CONFIG, changes)

    @compiled
    def log(
        self, metrics: Mapping[str, Any] | None = None, step: int | None = None, category: str | None = None,
        axis: str | None = None, **unknown: Any,
    ) -> None:  # fmt: skip
        """Record numbers at a step: the given one, else the current `step` or the last one.

        Where no `step` was entered, the one that `log` was given last counts, or else a counter. Values are numbers or
        scalars of numpy, torch, jax or tensorflow; nested dicts are flattened with `/`. The rows of a `Table` are
        recorded as by `sample`. Media, such as `stepscope.Image`, and lists of them are encoded on another thread. Any
        other value, and any unknown argument, is counted as rejected, and the rest is kept. Steps may come in any
        order. Nothing waits for device tensors.
        """
        try:
            if step is None:
                mark = current_mark.get() or self.active_mark or self.last_mark
                if mark is not None:
                    step, axis = mark
                elif self._given is not None:
                    step = self._given
                else:
                    step = self._counter
                    self._counter = step + 1
            else:
                if type(step) is not int or not FIRST_STEP <= step <= LAST_STEP:
                    step = step_number(step)
                if axis is None:
                    self._given = step
            if axis is not None and type(axis) is not str:
                axis = text_of(axis)
            if category is not None:
                category = _known_category(category) or names.category_of(category)
            if unknown:
                self.outcomes.reject_arguments("log", unknown)
            # One `sum` in C detects whether all values are plain numbers. With arrays and tensors it would compute,
            # so once such values were seen the types are checked instead, which takes longer.
            if (
                type(metrics) is dict
                and "" not in metrics
                and (type(sum(metrics.values(), 0.0)) is float if self._plain else self._are_plain(metrics))
            ):
                packed = pack_numbers((METRIC, _time_ns(), step, axis, category, metrics))
            else:
                self._log_other(metrics, step, axis, category)
                return
        except BaseException as raised:
            pass_on(raised)
            self._log_other(metrics, step, axis, category)
            return
        recorder = self.recorder
        recorder.append(packed)
        if len(recorder.buffer) >= recorder.limit:
            recorder.enforce_quota()

    def _are_plain(self, metrics: dict[str, Any]) -> bool:
        """Return whether all values are plain numbers, by their types alone."""
        plain = _NUMBERS.issuperset(map(type, metrics.values()))
        if plain and self._plain is None:
            self._plain = True
        return plain

    def _log_other(self, metrics: Any, step: Any, axis: str | None, category: Any) -> None:
        """Record what the fast path could not: nested dicts, scalars of other libraries, partly invalid values."""
        try:
            if not isinstance(metrics, Mapping):
                self.outcomes.reject("log", f"metrics must be a dict, got {type(metrics).__name__}")
                return
            number = self._step_number(step, len(metrics))
            if number is None:
                return
            chosen = None if category is None else names.category_of(category)
            flat, held, media = values.flatten(
                metrics,
                self.outcomes.reject,
                lambda key, table: self._put_table(chosen, key, table, Mark(number, axis)),
            )
            if self._plain:
                kinds = set(map(type, metrics.values()))
                self._plain = _ADD_NOTHING.issuperset(kind for kind in kinds if not values.is_apart(kind))
            row = Row(_time_ns(), number, axis, chosen, flat)
            if held:
                self.periodic.hold(row)
            elif flat:
                self.recorder.put(pack((METRIC, *row)))
            if media:
                self.put_media(media, row)
        except Refused as reason:
            self.outcomes.reject("log", str(reason))
        except BaseException as error:
            pass_on(error)
            self.outcomes.reject("log", type(error).__name__)

    def put_media(self, media: "Sequence[tuple[str, Medium]]", row: Row, first: int = 0) -> None:
        """Record media that were captured, at the place of a call; `first` is the index of the first of each key."""
        if self._media is None:
            from stepscope.sdk.media_values.writer import MediaWriter  # imported on use

            vars(self).setdefault("_media", MediaWriter(self))  # another thread may have been first
        if self._media is not None:
            self._media.take(media, row, first)

    def log_system(self, readings: Mapping[str, int | float]) -> None:
        """Record readings of the probes at the current step."""
        self.recorder.put(pack((METRIC, _time_ns(), *self.mark, "system", readings)))

    def _step_number(self, step: Any, lost: int = 1) -> int | None:
        """Return a step as int; None, counting `lost` rejections, when it is not one."""
        try:
            return step_number(step)
        except Refused as reason:
            self.outcomes.reject("step", str(reason), lost)
            return None

    @compiled
    def step(self, n: int | None = None, name: str = "step", **unknown: Any) -> Span:
        """Open the root span of step `n`; inside it every record carries the step. `name` names the axis."""
        if unknown:
            self.outcomes.reject_arguments("step", unknown)
        number = n if type(n) is int and FIRST_STEP <= n <= LAST_STEP else self._step_number(n)
        axis = name if type(name) is str else text_of(name)
        return open_step(self, new_mark(Mark, (number, None if axis == "step" else axis)))

    @property
    def stop_requested(self) -> bool:
        """Whether a user asked this run to stop, on the page, with `stepscope stop` or through the API.

        Reads memory only, so a loop may look at it in every step. Nothing is stopped: the program ends its loop itself.
        Ranks hear of a request within about a second, but not at the same step.
        """
        self.asks_to_stop = True
        return self.stop_asked is not None

    @property
    def remote_control(self) -> "RemoteControl":
        """What users ask of this process."""
        if self._remote_control is None:
            from stepscope.sdk.remote_control import RemoteControl  # imported on use

            self.__dict__.setdefault("_remote_control", RemoteControl(self))  # atomic: two threads may come here
        return self.__dict__["_remote_control"]  # type: ignore[no-any-return]

    @property
    def checkpoints(self) -> "Checkpoints":
        """The checkpoints that this process records."""
        if self._checkpoints is None:
            from stepscope.sdk.checkpoints import Checkpoints  # imported on use

            self.__dict__.setdefault("_checkpoints", Checkpoints(self))
        return self.__dict__["_checkpoints"]  # type: ignore[no-any-return]

    span = open_span

    def checkpoint(self, path: Any, /, step: int | None = None, **attrs: Any) -> "Checkpoint":
        """Record that a checkpoint was saved at a path; in `with`, the block that saves it is timed.

        Size and hashes of its files are added later, by a thread of its own; nothing is uploaded. Without a step, the
        current one is used. If the block raises, no checkpoint is recorded. Never raises itself and never waits.
        """
        return self.checkpoints.add(path, self._mark_of("checkpoint", step), attrs)

    def _mark_of(self, call: str, step: Any) -> Mark:
        """Return the step of a call, else the current one."""
        try:
            return self.mark if step is None else Mark(step_number(step), None)
        except Refused as reason:
            self.outcomes.reject(call, str(reason))
            return self.mark

    def artifact(
        self,
        source: Any,
        /,
        name: Any = None,
        kind: Any = "",
        *,
        copy: bool = False,
        step: int | None = None,
        **attrs: Any,
    ) -> "Artifact | None":
        """Record files that the run made for others: a path, a reference such as `s3://bucket/data`, or a dict of both.

        Without a name, that of the file or folder is used. Size and hashes are added later, by a thread of its own;
        nothing is uploaded, unless `copy` is set: then the files are kept beside the journal, and shipped, as logged
        files are. Never raises and never waits; None when nothing can be recorded.
        """
        from stepscope.sdk.checkpoints import Artifact, place_of  # imported on use

        try:
            if name is None:
                name = kind if isinstance(source, Mapping) else place_of(source).rstrip("/").rpartition("/")[2]
            named, word = text_of(name)[:LONGEST_NAME] or "artifact", text_of(kind)[:LONGEST_NAME]
            made = Artifact(source, self._mark_of("artifact", step), attrs, named, word, copy=bool(copy))
            self.checkpoints.add_artifact(made)
        except BaseException as error:
            pass_on(error)
            self.outcomes.reject("artifact", type(error).__name__)
            return None
        return made

    def use(self, what: Any, /, kind: Any = "", **attrs: Any) -> None:
        """Record the use of an artifact: what `artifact` returned, a name (`model:v2`), or a path with a slash."""
        self.checkpoints.note_used(what, text_of(kind)[:LONGEST_NAME], attrs)

    def resumed_from(self, path: Any = None, /, step: int | None = None, **unknown: Any) -> None:
        """Record that this attempt continues from the checkpoint at a path, which may be of another run."""
        self.outcomes.reject_arguments("resumed_from", unknown)
        if path is None:
            self.outcomes.reject("resumed_from", "no path was given")
            return
        self.checkpoints.note_loaded(path, step)

    def on_stop(self, call: Callable[[], object], /) -> Callable[[], bool]:
        """Have `call` called once when a user asks the run to stop, on a thread of its own; at once if one has.

        The returned function cancels this and returns whether it was in time. An exception of `call` is counted. Forked
        children do not inherit the call.
        """
        return self.remote_control.on_stop(call)

    def live(self, /, *unnamed: Any, **settings: Any) -> "LiveSettings":
        """Declare settings that users may change while the program runs, and return all of them: `live.lr_scale`.

        A setting is a finite number, a text, True or False, and keeps its type. One that is declared already keeps its
        value, so this may be called in a loop. Each change is recorded as an event. A restart begins with what it
        declares.
        """
        if unnamed:
            self.outcomes.reject("live", "a setting needs a name", len(unnamed))
        return self.remote_control.declare(settings)

    def tag(self, /, *tags: Any, **named: Any) -> None:
        """Add or replace tags: `run.tag("baseline", team="red")`; a list or a dict of tags is taken as by `init`.

        Later changes on the page or with a command override these.
        """
        try:
            self._edit({"tags": {**read_tags(tags), **read_tags(named)}})
        except BaseException as error:
            pass_on(error)
            self.outcomes.reject("tag", type(error).__name__)

    def untag(self, /, *names: Any, **unknown: Any) -> None:
        """Remove tags from the run, by name."""
        self.outcomes.reject_arguments("untag", unknown)
        try:
            self._edit({"tags": dict.fromkeys(read_tags(names))})
        except BaseException as error:
            pass_on(error)
            self.outcomes.reject("untag", type(error).__name__)

    def note(self, /, text: str | None = None, **unknown: Any) -> None:
        """Replace the notes of the run."""
        self.outcomes.reject_arguments("note", unknown)
        if text is None:
            self.outcomes.reject("note", "no text was given")
            return
        self._edit({"notes": text_of(text)[:LONGEST_NOTES]})

    def rename(self, /, name: str | None = None, **unknown: Any) -> None:
        """Give the run another name; its id stays."""
        self.outcomes.reject_arguments("rename", unknown)
        wanted = "" if name is None else text_of(name).strip()[:LONGEST_NAME]
        if not wanted:
            self.outcomes.reject("rename", "a name must not be empty")
            return
        self.name = wanted
        self._edit({"name": wanted})

    def _edit(self, change: dict[str, Any]) -> None:
        tags = change.get("tags")
        if tags is not None and not 0 < len(tags) <= MAX_TAGS:
            if tags:
                self.outcomes.reject("tag", f"more than {MAX_TAGS} tags at once")
            return
        self.event(names.EVENT_EDITED, change)

    def sample(self, row: Any = None, /, *, step: int | None = None, table: str = "samples", **columns: Any) -> None:
        """Record a row of a table at a step: `run.sample(prompt=..., completion=..., reward=...)`.

        The step is the given one, else the current one. Columns are texts, numbers, lists or dicts; those named `step`
        or `table` are given in a dict, the first argument. Texts are captured here and masked and written by the
        flusher. Never raises: what cannot be recorded is counted as rejected.
        """
        _sample_records().sample(self, row, step, table, columns)

    def _put_table(self, category: str | None, key: str, table: "Table", mark: Mark) -> None:
        """Record the rows of a table that was given to `log`."""
        _sample_records().put_table(self, f"{category}/{key}" if category else key, table, mark)

    def measure(
        self,
        /,
        numbers: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        instrument: Instrument | None = None,
        *,
        step: int | None = None,
        axis: str | None = None,
    ) -> None:
        """Record points with attributes and an instrument, which `log` has no room for; a gauge when none is given.

        Values are those of `log`, or a distribution of `stepscope.model.records`. Without a step, the current one is
        used. Never raises: what cannot be recorded is counted as rejected.
        """
        try:
            mark = self.mark if step is None else Mark(step_number(step), None if axis is None else text_of(axis))
            flat, held, media = values.flatten(numbers, self.outcomes.reject)
            for key, _ in media:
                self.outcomes.reject(key, "not a number")
            if not flat:
                return
            row = Row(time.time_ns(), *mark, None, flat, clean(attrs), instrument)
            if held:
                self.periodic.hold(row)
            else:
                packed = pack_any((METRIC, *row))
                self.recorder.put(packed if is_known(row.attrs) else Unmasked(packed))
        except Refused as reason:
            self.outcomes.reject("measure", str(reason))
        except BaseException as error:
            pass_on(error)
            self.outcomes.reject("measure", type(error).__name__)

    def on_finish(self, call: Callable[[], object], /) -> Callable[[], bool]:
        """Have `call` called once when the run finishes, before its last records are written; the newest comes first.

        The returned function cancels this and returns whether it was in time. An exception of `call` is counted. Forked
        children do not inherit the call.
        """
        closing = self.periodic.closing
        closing.append(call)

        def cancel() -> bool:
            try:
                closing.remove(call)
            except ValueError:
                return False
            return True

        return cancel

    def on_position(self, call: Callable[[], Mapping[str, Any]], /) -> None:
        """Have `call` add attributes to reports of where this process stands still; it runs on the flusher's thread."""
        self.positions.details.append(call)

    def count(self, outcome: str, kind: str, reason: str | None = None, number: int = 1) -> None:
        """Add to a counter of the run, such as `rejected/metrics/no step`; the counters are recorded every 5 s."""
        self.outcomes.add(outcome, kind, reason, number)

    def reject(self, key: str, reason: str, number: int = 1) -> None:
        """Count values that cannot be kept as rejected, and warn of it once for each key."""
        self.outcomes.reject(key, reason, number)

    def warn(self, text: str, *, about: str | None = None) -> None:
        """Print a warning from the flusher's thread, once for each subject, which is the text itself unless given."""
        self.outcomes.notice("notice", text if about is None else about, text)

    @property
    def overhead_budget(self) -> float:
        """The share of the time that optional work may take, as the setting says."""
        return self.overhead.budget

    def affords(self) -> bool:
        """Return whether optional work may be done now: what Stepscope takes is below the `overhead_budget`.

        Optional is what nobody asked for record by record, such as checks and timings of an integration.
        """
        return self.overhead.affords()

    def add_overhead(self, part: str, seconds: float, *, optional: bool = True) -> None:
        """Add the seconds that some work took, which are recorded as the share `stepscope/overhead/PART`."""
        self.overhead.add(part, seconds, optional=optional)

    def event(
        self, name: str | None = None, data: Mapping[str, Any] | None = None, severity: str = "INFO", *,
        step: int | None = None, **unknown: Any,
    ) -> None:  # fmt: skip
        """Record an event. Data that is not a dict is stored under `value`.

        When memory or disk is full, events and alerts are dropped last.
        """
        self.outcomes.reject_arguments("event", unknown)
        self._note(EVENT, name, severity, step, data)

    def alert(
        self, name: str | None = None, severity: str = "WARN", message: str = "", *,
        step: int | None = None, **attrs: Any,
    ) -> None:  # fmt: skip
        """Record something that needs attention; further arguments become its attributes."""
        self._note(ALERT, name, severity, step, attrs, shorten(text_of(message)))

    def exception(self, error: BaseException | None = None, *, severity: str = "ERROR", **attrs: Any) -> None:
        """Record an exception with its type, message and stack."""
        if error is None or not issubclass(type(error), BaseException):  # a proxy may raise when asked for its class
            self.outcomes.reject("exception", f"error must be an exception, got {type(error).__name__}")
            return
        self.event(names.EVENT_EXCEPTION, {**exception_attrs(error), **attrs}, severity)

    def _note(self, kind: int, name: str | None, severity: str, step: int | None, data: Any, *texts: str) -> None:
        if name is None:
            self.outcomes.reject("alert" if kind == ALERT else "event", "no name was given")
            return
        try:
            at = self.mark if step is None else Mark(self._step_number(step), None)
            number = self._severity(kind, severity)
            given = data if data is None or isinstance(data, Mapping) else {"value": data}
            attrs = {**current().get(CARRIED_KEY, {}), **clean(given)}
            record = (kind, _time_ns(), *at, *current_ids(), number, shorten(text_of(name)), *texts, attrs)
            self.recorder.put(Unmasked(pack_any(record)))
        except BaseException as error:
            pass_on(error)
            self.outcomes.reject(text_of(name), f"{type(error).__name__}")

    def _severity(self, kind: int, word: Any) -> int:
        """Return the number of a severity word or logging level; an unknown one gets the default."""
        number = names.SEVERITIES.get(text_of(word).upper()) or names.LOGGING_LEVELS.get(word)
        if number is None:
            known = ", ".join(names.SEVERITIES)
            self.outcomes.notice_text(f"unknown severity {text_of(word)!r}; use one of {known}")
        return number or names.SEVERITIES["WARN" if kind == ALERT else "INFO"]

    @property
    def mark(self) -> Mark:
        """The current step of the calling code."""
        return current_mark.get() or self.active_mark or NO_MARK

    def goodput(self) -> "Goodput":
        """Return the goodput so far: how the time was spent, on all ranks whose journals are in this home.

        Reads the journals from where the last call ended, so do not call it in every step. Never raises.
        """
        from stepscope.journal.run_goodput import Folding  # imported on use

        if self._folding is None:
            self._folding = Folding(self.home, self.id)
        self.flusher.flush(1.0)
        return self._folding.look()

    def flush(self, timeout: float | None = None, **unknown: Any) -> DeliveryStatus:
        """Wait at most `timeout` seconds until everything recorded so far is in the journal; false if it is not.

        Does not wait for sinks; `undelivered` of the result is what they lack at this moment.
        """
        self.outcomes.reject_arguments("flush", unknown)
        if self._checkpoints is not None:
            self._checkpoints.settle()
        deadline = time.monotonic() + self._bounded(timeout)
        encoded = self._media is None or self._media.drain(deadline - time.monotonic())
        safe = self.flusher.flush(max(deadline - time.monotonic(), 0)) and encoded and not self.recorder.late
        return self.delivery.status(safe, look=safe)

    def finish(
        self, status: str = "finished", *, timeout: float | None = None, wait: float = 0.0, **unknown: Any
    ) -> DeliveryStatus:
        """End the run and wait at most `timeout` seconds until it is in the journal; a second call ends nothing.

        With `wait`, also wait at most that many seconds until every remote sink has it; false if one has not.
        """
        if self._finished:
            return self.delivery.status(self._recorded, time.monotonic() + self._bounded(wait) if wait else None)
        self.outcomes.reject_arguments("finish", unknown)
        try:
            self._finished = True
            return self._finish(status, timeout, wait)
        except BaseException:  # Ctrl-C; the next call ends the run, or the end of the program
            self._finished = False
            atexit.register(self.finish)
            raise

    def _finish(self, status: str, timeout: float | None, wait: float) -> DeliveryStatus:
        self._config.record_changes()
        if self.status == "running":
            self.status = self._ended_as(status)
        deadline = time.monotonic() + self._bounded(timeout)
        self.periodic.close(deadline)
        if not self.main and not self.flusher.started and not self.recorder.buffer:
            return NOTHING_LEFT  # a child that recorded nothing
        while self.periodic.waiting() and time.monotonic() < deadline:
            self.flusher.flush(deadline - time.monotonic())
            time.sleep(0.005)
        if self._media is not None:
            self._media.close(deadline - time.monotonic())
        self.periodic.collect()
        if self.diagnosis is not None:
            self.diagnosis.last = True
        self.flusher.flush(max(deadline - time.monotonic(), 0))
        self.periodic.record_end(self.status)
        self.periodic.beat(last=True)
        self._recorded = self.flusher.stop(max(deadline - time.monotonic(), 0))
        until = time.monotonic() + (self._bounded(wait) if wait else 0.0)
        for each in self.finishing:
            each(deadline, until)
        # Do not read the disk when time is up: it may be what was slow.
        outcome = self.delivery.status(
            self._recorded, until if wait else None, look=bool(wait) or time.monotonic() < deadline
        )
        if outcome.undelivered != 0:
            self.delivery.on_undelivered(outcome.undelivered)
            self.flusher.start()  # prints the warning
        return outcome

    def _ended_as(self, status: Any) -> str:
        word = text_of(status).strip().lower()
        if word not in names.ENDINGS:
            known = ", ".join(names.ENDINGS)
            self.outcomes.notice_text(f"finish({word!r}) is recorded as finished; known states are {known}")
        return names.ENDINGS.get(word, "finished")

    def _bounded(self, seconds: Any) -> float:
        """Return a timeout as float, at most a day; `exit_timeout` for None or an invalid value."""
        if seconds is None:
            return self.settings.exit_timeout
        try:
            number = float(seconds)
        except BaseException as raised:
            pass_on(raised)
            return self.settings.exit_timeout
        return self.settings.exit_timeout if number != number else min(max(number, 0.0), MAX_SECONDS)

    def undelivered(self) -> int | None:
        """Return how many bytes of this process's journal the slowest sink lacks; None if unknown. Reads the disk."""
        return self.delivery.undelivered()

    def after_fork(self) -> None:
        """Become a separate writer in a forked child."""
        self.pid = os.getpid()
        self.main = False
        self.started, self.started_monotonic = _time_ns(), time.monotonic_ns()
        for span in self.open_spans.values():
            span.duration = 0  # the parent records this span
        self.open_spans.clear()
        self.outcomes.reset()
        self.recorder.after_fork()
        self.overhead.reset()
        self.call_times.disarm()
        self.call_times = CallTimes(self)
        self.periodic.after_fork()
        if self._remote_control is not None:
            self._remote_control.after_fork()
        if self._checkpoints is not None:
            self._checkpoints.after_fork()
        vars(self).pop("_media", None)  # the parent records what waits there
        if self.diagnosis is not None:
            self.diagnosis.reset()
        self.flusher.reset()

    def __copy__(self) -> "Run":
        return self

    def __deepcopy__(self, memo: object) -> "Run":
        """Return the run itself: a copied object that holds a run records into the same run."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle as the current run of the other process."""
        return self.elsewhere, ()

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        if failed and error is not None and is_first_sight(error, self.id):
            self.exception(error, severity="FATAL")
        self.finish("failed" if failed else "finished")

    def __repr__(self) -> str:
        return f"<Run {self.id} ({self.status}) rank {self.rank} in {self.home}>"

    def _repr_html_(self) -> str | None:
        """Return the card a notebook shows; None, for which it shows `repr`, when there is none."""
        try:
            from stepscope.sdk.run_display import card  # imported on use

            self.flusher.flush(0.5)
            return card(self)
        except Exception:
            return None


use(
    otel_variable=otel_variable,
    current_mark=current_mark,
    span_key=SPAN_KEY,
    carried_key=CARRIED_KEY,
    no_mark=NO_MARK,
    harmless=harmless,
    plain_texts=plain_texts,
    categories=names.CATEGORIES,
    step_name=names.SPAN_STEP,
    drop_left=drop_left,
    context_type=Context,
    mark_type=Mark,
    span_type=Span,
    step_type=StepSpan,
    run_type=Run,
    recorder_type=Recorder,
)
