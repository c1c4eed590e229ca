"""A run in wandb's words: steps that count themselves, a configuration and a summary that are like dicts."""

import fnmatch
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any

import stepscope
from stepscope.journal import layout
from stepscope.sdk.context import text_of
from stepscope.sdk.scalars import Refused, step_number


class AlertLevel(Enum):
    """How bad it is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class Absent:
    """Stands for what wandb has and Stepscope has not: can be called, looked into and looped over, and is empty."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> "Absent":
        return self

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("_"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __repr__(self) -> str:
        return f"<no {self._name}>"


class Config:
    """A configuration: keys as items or attributes."""

    def __init__(
        self,
        changed: Callable[[dict[str, Any]], object],
        values: Mapping[str, Any],
        ignore: Callable[[str], object] = lambda what: None,
    ) -> None:
        self.__dict__.update(_values=dict(values), _changed=changed, _ignore=ignore)

    def update(self, values: Any = None, allow_val_change: bool | None = None, **more: Any) -> None:
        """Set several keys."""
        changes = {**self._read(values), **more}
        self._values.update(changes)
        self._changed(changes)

    def setdefaults(self, values: Any) -> None:
        """Set the keys that are not there."""
        self.update({key: value for key, value in self._read(values).items() if key not in self._values})

    def _read(self, values: Any) -> dict[str, Any]:
        found = {} if values is None else as_dict(values)
        if found is None:
            self._ignore("config.update")
        return found or {}

    def as_dict(self) -> dict[str, Any]:
        """Copy it."""
        return dict(self._values)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._values.get(key, default)

    def keys(self) -> Any:
        """The keys."""
        return self._values.keys()

    def items(self) -> Any:
        """Keys and values."""
        return self._values.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["_values"][key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self.update({key: value})


class Summary(dict[str, Any]):
    """One value for each key; those set by hand stay."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def take(self, key: str, value: Any, how: str) -> None:
        """Fold a value in; only numbers of this machine are, for one on a device would have to be waited for.

        NaN is the least or the greatest only as long as there is no number.
        """
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or how == "none":
            return
        now = self.get(key)
        is_best = isinstance(now, numbers.Real) and (now != now or (value < now if how == "min" else value > now))
        if now is None or how == "last" or is_best:
            self[key] = value


@dataclass(frozen=True, slots=True)
class Definition:
    """What was said of metrics whose name matches."""

    name: str
    step_metric: str | None
    summary: str | None


class Run:
    """A run. Each `log` is one step further, unless it says `commit=False` or names its step."""

    offline = False
    sweep_id = sweep_url = project_url = url = None

    def __init__(
        self, run: stepscope.Run, config: Mapping[str, Any], said: Mapping[str, Any], tags: tuple[str, ...] = ()
    ) -> None:
        self._run = run
        self._definitions: list[Definition] = []
        self.id, self.name, self.project = run.id, run.name, run.project
        self.entity, self.group, self.job_type, self.notes = map(said.get, ("entity", "group", "job_type", "notes"))
        self.tags = tags
        self.disabled = run.status == "disabled"
        self.step = 0
        self.config = Config(lambda changed: run.event("train.config", changed), config, self.ignore)
        self.summary = Summary()

    @property
    def dir(self) -> str:
        """Where the run's journal lies."""
        return str(self._run.home / "runs" / self.id)

    @property
    def resumed(self) -> bool:
        """Whether this goes on with an earlier run; looks at the disk."""
        if self.disabled:
            return False
        self._run.flush()
        found = map(layout.parse_writer, layout.list_writers(self._run.home, self.id))
        return len({each.attempt for each in found if each is not None}) > 1

    def ignore(self, what: str) -> None:
        """Count something of wandb that has no meaning here, and name it once."""
        outcomes = getattr(self._run, "outcomes", None)  # a run that is disabled counts nothing
        if outcomes is not None:
            outcomes.add("ignored", "wandb", what)
            outcomes.notice("wandb", what, f"wandb's {what} has no meaning here and is ignored")

    def log(self, data: Any, step: Any = None, commit: bool | None = None, **others: Any) -> None:
        """Record values at this step, the next one, or the one named; steps may come in any order."""
        for key in others:
            self.ignore(f"log.{key}")
        named = None if step is None else _whole(step)
        if named is not None:
            self.step = named
        elif step is not None:
            self.ignore("log.step")
        if not isinstance(data, Mapping):
            self._run.log(data, self.step)
            return
        for axis, values in self._by_axis(data).items():
            self._run.log(values, self.step if axis is None else _whole(data[axis]), axis=axis)
        for key, value in data.items():
            self.summary.take(text_of(key), value, self._how(text_of(key)))
        if commit or (commit is None and named is None):
            self.step += 1

    def _by_axis(self, data: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
        sorted_: dict[str | None, dict[str, Any]] = {}
        for key, value in data.items():
            axis = self._axis(text_of(key), data)
            sorted_.setdefault(axis, {})[text_of(key)] = value
        return sorted_

    def _axis(self, key: str, data: Mapping[str, Any]) -> str | None:
        """The metric that a key's definition names as its axis, if the same call gives a whole number for it."""
        found = next((each for each in reversed(self._definitions) if _matches(each.name, key)), None)
        axis = None if found is None else found.step_metric
        value = data.get(axis) if axis is not None and axis != key else None
        return axis if isinstance(value, numbers.Real) and _whole(value) is not None else None

    def _how(self, key: str) -> str:
        found = next((each for each in reversed(self._definitions) if each.summary and _matches(each.name, key)), None)
        return "last" if found is None else str(found.summary)

    def define_metric(
        self, name: str, step_metric: Any = None, summary: str | None = None, **others: Any
    ) -> Definition:
        """Say which metric is the axis of those that match, and whether their summary is min, max, last or none."""
        for key in others:
            self.ignore(f"define_metric.{key}")
        chosen = None if summary is None else text_of(summary).split(",")[0]
        if chosen not in (None, "min", "max", "last", "none"):
            self.ignore(f"define_metric.summary={chosen}")
            chosen = None
        axis = getattr(step_metric, "name", step_metric)
        said = Definition(text_of(name), None if axis is None else text_of(axis), chosen)
        self._definitions.append(said)
        return said

    def alert(self, title: str, text: str = "", level: Any = None, **others: Any) -> None:
        """Record an alert."""
        for key in others:
            self.ignore(f"alert.{key}")
        word = text_of(getattr(level, "value", level)).upper()
        self._run.alert(title, word if word in AlertLevel.__members__ else "INFO", text)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """Record the summary and end the run; one with another exit code than 0 has failed."""
        if self.summary:
            self._run.event("train.summary", self.summary)
        self._run.finish("failed" if exit_code else "finished")

    def __getattr__(self, name: str) -> Any:
        """What else wandb's runs have is absent here, counted."""
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
            self._run.exception(error, severity="FATAL")
        self.finish(1 if error is not None else 0)


def _matches(pattern: str, key: str) -> bool:
    return pattern == key or ("*" in pattern and fnmatch.fnmatchcase(key, pattern))


def _whole(value: Any) -> int | None:
    """The integer of 64 bits that a value is, whoever made it; None when it is none."""
    try:
        is_whole = isinstance(value, numbers.Real) and float(value).is_integer()
        return step_number(int(value) if is_whole else value)
    except (Refused, OverflowError):  # the latter: an integer no float can hold
        return None


def as_dict(config: Any) -> dict[str, Any] | None:
    """A configuration as a dict: of a mapping, pairs, or the attributes of an object; None for what is none of it."""
    try:
        if isinstance(config, (Mapping, Config)):
            pairs = config.items()
        else:
            pairs = (vars(config) if hasattr(config, "__dict__") else dict(config)).items()
        return {text_of(key): value for key, value in pairs}
    except Exception:  # whatever a foreign object raises when it is read
        return None


def tags_of(given: Any) -> tuple[str, ...]:
    """Tags as texts: one that is given alone is one."""
    if given is None:
        return ()
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    return tuple(text_of(each) for each in (given if several else (given,)))
