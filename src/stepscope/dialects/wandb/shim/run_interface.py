"""A run with wandb's interface: automatic steps, a summary, and a name, tags and notes that may change."""

import fnmatch
import glob
import numbers
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any

import stepscope
from stepscope.dialects.wandb.shim.absent import Absent, tags_of, text
from stepscope.dialects.wandb.shim.artifacts import Artifact, artifact_of, find_logged
from stepscope.dialects.wandb.shim.media import Table, as_medium
from stepscope.dialects.wandb.shim.plots import CustomChart
from stepscope.dialects.wandb.shim.start import Config, Start
from stepscope.dialects.wandb.shim.tables import SeenRows, without_media
from stepscope.dialects.wandb.wire import MAX_ROWS
from stepscope.extend import Refused, attempts, last_step, run_folder, step_number, text_of
from stepscope.model.names import EVENT_CONFIG
from stepscope.model.run_description import read_tags


class Summary(dict[str, Any]):
    """One value per key; values that the script sets are not overwritten."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def take(self, key: str, value: Any, how: str) -> None:
        """Add a value; values on a device are skipped, because reading them would block.

        A number always replaces NaN in a minimum or maximum.
        """
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or how == "none":
            return
        now = self.get(key)
        is_best = isinstance(now, numbers.Real) and (now != now or (value < now if how == "min" else value > now))
        if now is None or how == "last" or is_best:
            self[key] = value


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition by `define_metric`, for all metrics with a matching name."""

    name: str
    step_metric: str | None
    summary: str | None

    def matches(self, key: str) -> bool:
        """Return whether a key matches."""
        return self.name == key or ("*" in self.name and fnmatch.fnmatchcase(key, self.name))


MAX_DEPTH = 16
"""How deep nested dicts are searched for media; a dict may contain itself."""


class AlertLevel(Enum):
    """The severity of an alert."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class RecordedAttribute:
    """An attribute of a run whose changes by the script are recorded."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, run: "Run | None", owner: type | None = None) -> Any:
        return self if run is None else run.__dict__[self._name]

    def __set__(self, run: "Run", value: Any) -> None:
        before, value = run.__dict__[self._name], self._read(value)
        run.__dict__[self._name] = value
        run.note_change(self._name, before, value)


class Run:
    """A run. Each `log` advances the step, unless called with `commit=False` or a step.

    A current run is joined, and continues after `finish`: only the code that started a run ends it.
    """

    offline = False
    sweep_id = sweep_url = project_url = url = None
    name = RecordedAttribute(lambda given: text(given) or "")
    notes = RecordedAttribute(text)
    tags = RecordedAttribute(tags_of)

    def __init__(self, run: stepscope.Run, start: Start, config: Mapping[str, Any], *, ours: bool = True) -> None:
        self._run = run
        self._ours = ours
        self._wanted = start.id
        self._definitions: list[Definition] = []
        self.ended = False
        self._pid = os.getpid()
        self.id, self.project = run.id, run.project
        self.entity, self.group, self.job_type = start.entity, start.group, start.job_type
        self.__dict__.update(name=run.name or run.id, notes=start.notes, tags=start.tags)
        self.disabled = run.status == "disabled"
        self.start_time = 0.0 if self.disabled else run.started / 1e9
        self.step = self._first_step(start)
        self.config = Config(config, lambda changed: run.event(EVENT_CONFIG, changed), self.ignore)
        self.summary = Summary()
        self._seen_rows = SeenRows()
        self._cancel_close = run.on_finish(self._close)

    def _first_step(self, start: Start) -> int:
        """The step after that at which the run was forked or continues, else after the last one of the resumed run."""
        if start.from_step is not None and self._ours:
            return start.from_step + 1
        if not start.resumes or not self._ours or self.disabled:
            return 0
        last = last_step(self._run.home, self.id, self._run.rank)
        if last is None and start.resume == "must":
            self.ignore("init.resume")
        return 0 if last is None else last + 1

    @property
    def path(self) -> str:
        """Entity, project and run id."""
        return "/".join(filter(None, (self.entity, self.project, self.id)))

    @property
    def dir(self) -> str:
        """A folder for the script's own files, next to the run's journal; created on first use."""
        folder = run_folder(self._run) / "files"
        try:
            if not self.disabled:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                return str(folder)
        except OSError:
            self.ignore("run.dir")
        return tempfile.gettempdir()

    @property
    def resumed(self) -> bool:
        """Whether this continues an earlier run; reads the disk."""
        if self.disabled:
            return False
        self._run.flush()
        return attempts(self._run) > 1

    def note_change(self, what: str, before: Any, value: Any) -> None:
        """Record a change of the run's name, notes or tags."""
        if what == "name":
            self._run.rename(value)
        elif what == "notes":
            self._run.note(value or "")
        else:
            self._run.untag(*read_tags(set(before) - set(value)))
            self._run.tag(*value)

    def describe(self, start: Start) -> None:
        """Add the arguments of `init` to a run that was started before it."""
        if start.notes:
            self._run.note(start.notes)
        self._run.tag(*start.tags)
        for key in ("group", "job_type"):
            if getattr(start, key):
                self.ignore(f"init.{key}")

    def ignore(self, what: str) -> None:
        """Count an unsupported wandb feature, and name it in one warning."""
        self._run.count("ignored", "wandb", what)
        self._run.warn(f"wandb's {what} is not supported and is ignored")

    def is_requested(self, start: Start) -> bool:
        """Return whether this is the requested run; never for a run from before a fork."""
        is_same = start.id in (None, self.id, self._wanted) and self._pid == os.getpid()
        return is_same and (start.mode not in ("online", "offline") if self.disabled else not start.disabled)

    def ignore_other(self, start: Start, *keys: str) -> None:
        """Count requested settings that differ from those of the current run as ignored."""
        for key in keys:
            if getattr(start, key) and getattr(start, key) != getattr(self, key):
                self.ignore(f"init.{key}")

    def log(self, data: Any, step: Any = None, commit: bool | None = None, **others: Any) -> None:
        """Record values at the current, the next or the given step; steps may come in any order."""
        for key in others:
            self.ignore(f"log.{key}")
        named = None if step is None else _as_step(step)
        if named is not None:
            self.step = named
        elif step is not None:
            self.ignore("log.step")
        if not isinstance(data, Mapping):
            self._run.log(data, self.step)
            return
        for axis, values in self._by_axis(data).items():
            at = self.step if axis is None else _as_step(data[axis])
            texts = {key: value for key, value in values.items() if isinstance(value, str)}
            if texts:
                self._run.event("wandb.values", texts, step=at)
            rest, tables = _split_tables({key: value for key, value in values.items() if key not in texts})
            rest = self._with_charts(rest, tables)
            if rest or not (texts or tables):
                self._run.log(rest if self.disabled else _with_media(rest), at, axis=axis)
            for key, table in tables.items():
                self._log_table(key, table, at)
        for key, value in data.items():
            self.summary.take(text_of(key), value, self._how(text_of(key)))
        if commit or (commit is None and named is None):
            self.step += 1

    def _with_charts(self, values: dict[str, Any], tables: dict[str, Table]) -> dict[str, Any]:
        """Replace charts by our own, and add their tables to those that are recorded."""
        found: dict[str, Any] = {}
        for key, value in values.items():
            if not isinstance(value, CustomChart):
                found[key] = value
                continue
            tables[value.table_key(key)] = value.table
            drawn = value.captured()
            if drawn is not None:
                found[key] = drawn
        return found

    def log_text(self, tag: str, text: str, step: Any = None) -> None:
        """Record text as an event named after its tag, at a step if given."""
        self._run.event(tag, {"text": text}, step=None if step is None else _as_step(step))

    def _log_table(self, key: str, table: Table, step: int | None) -> None:
        """Record the rows that were not recorded before."""
        for count, (own, cells) in enumerate(self._seen_rows.new_rows(key, table)):
            if count >= MAX_ROWS:
                self._run.reject(key, f"more than {MAX_ROWS} rows")
                break
            cells, media = without_media(cells)
            at = step if own is None else own
            for name, value in media.items():
                self._run.log({f"{key}/{name}": as_medium(value)}, at)
            self._run.sample(cells, step=at, table=key)

    def _by_axis(self, data: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
        sorted_: dict[str | None, dict[str, Any]] = {}
        for key, value in data.items():
            axis = self._axis(text_of(key), data)
            sorted_.setdefault(axis, {})[text_of(key)] = value
        return sorted_

    def _axis(self, key: str, data: Mapping[str, Any]) -> str | None:
        """The axis metric of a key's definition, if the same call has an integer for it."""
        found = next((each for each in reversed(self._definitions) if each.matches(key)), None)
        axis = None if found is None else found.step_metric
        value = data.get(axis) if axis is not None and axis != key else None
        return axis if isinstance(value, numbers.Real) and _as_step(value) is not None else None

    def _how(self, key: str) -> str:
        found = next((each for each in reversed(self._definitions) if each.summary and each.matches(key)), None)
        return "last" if found is None else str(found.summary)

    def define_metric(
        self, name: str, step_metric: Any = None, summary: str | None = None, **others: Any
    ) -> Definition:
        """Define the axis of matching metrics, and whether their summary is min, max, last or none."""
        for key in others:
            self.ignore(f"define_metric.{key}")
        chosen = None if summary is None else text_of(summary).split(",")[0]
        if chosen not in (None, "min", "max", "last", "none"):
            self.ignore(f"define_metric.summary={chosen}")
            chosen = None
        value = Definition(text_of(name), text(getattr(step_metric, "name", step_metric)), chosen)
        self._definitions.append(value)
        return value

    def alert(self, title: str, text: str = "", level: Any = None, **others: Any) -> None:
        """Record an alert."""
        for key in others:
            self.ignore(f"alert.{key}")
        word = text_of(getattr(level, "value", level)).upper()
        self._run.alert(title, word if word in AlertLevel.__members__ else "INFO", text)

    def log_artifact(
        self, given: Any, name: Any = None, type: Any = None, aliases: Any = None, tags: Any = None
    ) -> Artifact:
        """Record an artifact, or a file or folder as one, with copies of its files."""
        made = artifact_of(given, name, type)
        if not self.disabled:
            made.log(self._run, [aliases] if isinstance(aliases, str) else aliases)
        return made

    def use_artifact(self, given: Any, type: Any = None, **others: Any) -> Artifact:
        """Record that the run uses an artifact, and return it. One of another process has no files here."""
        found = given if isinstance(given, Artifact) else find_logged(given)
        named = found.name if found is not None else text_of(given).rpartition("/")[2]
        if not self.disabled:
            self._run.use((found and found.made) or named, text(type) or ("" if found is None else found.type))
        if found is None:
            self.ignore("use_artifact of another process")
        return found or Artifact(named.partition(":")[0], type)

    def link_artifact(self, artifact: Any, target_path: Any, aliases: Any = None) -> Artifact:
        """Record an artifact under the name of another collection as well."""
        made = artifact if isinstance(artifact, Artifact) else artifact_of(artifact)
        if made.version_of(self._run) is None:
            self.log_artifact(made)
        return made if self.disabled else made.link(target_path, aliases)

    def log_model(self, path: Any, name: Any = None, aliases: Any = None) -> Artifact:
        """Record a file or folder as an artifact of the type `model`."""
        return self.log_artifact(path, name or f"run-{self.id}-{os.path.basename(text_of(path))}", "model", aliases)

    def use_model(self, name: Any) -> str:
        """Record that the run uses a model, and return the path of its file or folder."""
        found = self.use_artifact(name, "model")
        return found.file() if found.has_one_file else found.download()

    def link_model(
        self, path: Any, registered_model_name: Any, name: Any = None, aliases: Any = None, **others: Any
    ) -> Artifact:
        """Record a model, and once more under its registered name."""
        return self.link_artifact(self.log_model(path, name), text_of(registered_model_name), aliases)

    def save(self, glob_str: Any = None, base_path: Any = None, policy: Any = "live", **others: Any) -> list[str]:
        """Record the files that a pattern matches, as they are now."""
        found = [path for path in sorted(glob.glob(text_of(glob_str or ""))) if os.path.isfile(path)]
        for path in found:
            name = os.path.relpath(path, text(base_path)) if text(base_path) else os.path.basename(path)
            self._run.log({f"files/{name}": stepscope.File(path, name)}, self.step)
        return found

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """Record the summary and end the run; an exit code other than 0 means that it failed."""
        if self.ended:
            return
        if self._ours:
            self._run.finish("failed" if exit_code else "finished")
        else:
            self._leave(exit_code)
        self.ended = True

    def _leave(self, exit_code: int | None) -> None:
        """Detach from a run that was started elsewhere; does nothing in a forked child."""
        if exit_code:
            self.ignore("finish.exit_code")
        if self._cancel_close():
            self._close()

    def _close(self) -> None:
        """Record the summary, however the run ends."""
        self.ended = True
        if self.summary:
            self._run.event("train.summary", self.summary)

    def __getattr__(self, name: str) -> Any:
        """Return a placeholder for an unsupported attribute, and count it."""
        if name.startswith("_"):
            raise AttributeError(name)
        self.ignore(f"run.{name}")
        return Absent(f"run.{name}")

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None:
            self._run.exception(error, severity="FATAL" if self._ours else "ERROR")
        self.finish(1 if error is not None else 0)


def _split_tables(
    values: Mapping[str, Any], prefix: str = "", depth: int = MAX_DEPTH
) -> tuple[dict[str, Any], dict[str, Table]]:
    """Separate tables, whose rows are recorded as samples, from the rest."""
    rest: dict[str, Any] = {}
    tables: dict[str, Table] = {}
    for key, value in values.items():
        if isinstance(value, Table):
            tables[prefix + text_of(key)] = value
        elif type(value) is dict and depth:
            rest[key], inner = _split_tables(value, f"{prefix}{text_of(key)}/", depth - 1)
            tables.update(inner)
        else:
            rest[key] = value
    return rest, tables


def _with_media(values: Mapping[str, Any], depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Replace wandb's media by our own, also in nested dicts."""
    return {
        key: _with_media(value, depth - 1) if type(value) is dict and depth else as_medium(value)
        for key, value in values.items()
    }


def _as_step(value: Any) -> int | None:
    """Return the value as a 64-bit integer; None when it is not one."""
    try:
        is_whole = isinstance(value, numbers.Real) and float(value).is_integer()
        return step_number(int(value) if is_whole else value)
    except (Refused, OverflowError):  # OverflowError: an integer too large for a float
        return None
