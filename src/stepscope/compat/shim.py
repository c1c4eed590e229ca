"""A run in wandb's words: steps that count themselves, a configuration and a summary that are like dicts."""

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import stepscope

_LEVELS = {"INFO": "INFO", "WARN": "WARN", "ERROR": "ERROR"}


class Config:
    """A configuration: keys as items or attributes."""

    def __init__(self, changed: Callable[[dict[str, Any]], None], values: Mapping[str, Any]) -> None:
        self.__dict__["_values"] = dict(values)
        self.__dict__["_changed"] = changed

    def update(self, values: Any = None, allow_val_change: bool | None = None, **more: Any) -> None:
        """Set several keys."""
        given = vars(values) if hasattr(values, "__dict__") and not isinstance(values, Mapping) else dict(values or {})
        self._values.update({**given, **more})
        self._changed({**given, **more})

    def setdefaults(self, values: Mapping[str, Any]) -> None:
        """Set the keys that are not there."""
        self.update({key: value for key, value in dict(values).items() if key not in self._values})

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

    def take(self, key: str, value: Any, how: str) -> None:
        """Fold a value in; only numbers of this machine are, for one on a device would have to be waited for."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or how == "none":
            return
        now = self.get(key)
        if now is None or how == "last":
            self[key] = value
        elif how in ("min", "max"):
            self[key] = min(now, value) if how == "min" else max(now, value)


@dataclass(frozen=True, slots=True)
class Definition:
    """What was said of metrics whose name matches."""

    name: str
    step_metric: str | None
    summary: str | None


class Run:
    """A run. Each `log` is one step further, unless it says `commit=False` or names its step."""

    def __init__(self, run: stepscope.Run, config: Mapping[str, Any]) -> None:
        self._run = run
        self._definitions: list[Definition] = []
        self.id, self.name, self.project = run.id, run.name, run.project
        self.step = 0
        self.url = None
        self.config = Config(lambda changed: run.event("train.config", changed), config)
        self.summary = Summary()

    @property
    def dir(self) -> str:
        """Where the run's journal lies."""
        return str(self._run.home / "runs" / self.id)

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
        if isinstance(step, int):
            self.step = step
        elif step is not None:
            self.ignore("log.step")
        if not isinstance(data, Mapping):
            self._run.log(data, self.step)
            return
        for axis, values in self._by_axis(data).items():
            place = self.step if axis is None else int(data[axis])
            self._run.log(values, place, axis=axis)
        for key, value in data.items():
            self.summary.take(str(key), value, self._how(str(key)))
        if commit or (commit is None and step is None):
            self.step += 1

    def _by_axis(self, data: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
        sorted_: dict[str | None, dict[str, Any]] = {}
        for key, value in data.items():
            axis = self._axis(str(key), data)
            sorted_.setdefault(axis, {})[str(key)] = value
        return sorted_

    def _axis(self, key: str, data: Mapping[str, Any]) -> str | None:
        """The metric that a key's definition names as its axis, if the same call gives a whole number for it."""
        found = next((each for each in reversed(self._definitions) if _matches(each.name, key)), None)
        axis = None if found is None else found.step_metric
        value = data.get(axis) if axis is not None and axis != key else None
        whole = isinstance(value, (int, float)) and float(value).is_integer()
        return axis if whole else None

    def _how(self, key: str) -> str:
        found = next((each for each in reversed(self._definitions) if each.summary and _matches(each.name, key)), None)
        return "last" if found is None else str(found.summary)

    def define_metric(
        self, name: str, step_metric: Any = None, summary: str | None = None, **others: Any
    ) -> Definition:
        """Say which metric is the axis of those that match, and whether their summary is min, max, last or none."""
        for key in others:
            self.ignore(f"define_metric.{key}")
        chosen = None if summary is None else str(summary).split(",")[0]
        if chosen not in (None, "min", "max", "last", "none"):
            self.ignore(f"define_metric.summary={chosen}")
            chosen = None
        axis = getattr(step_metric, "name", step_metric)
        said = Definition(str(name), None if axis is None else str(axis), chosen)
        self._definitions.append(said)
        return said

    def alert(self, title: str, text: str = "", level: Any = None, **others: Any) -> None:
        """Record an alert."""
        word = _LEVELS.get(str(getattr(level, "value", level)).upper(), "INFO")
        self._run.alert(str(title), word, str(text))

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """Record the summary and end the run; one with another exit code than 0 has failed."""
        if self.summary:
            self._run.event("train.summary", self.summary)
        self._run.finish("failed" if exit_code else "finished")

    def __getattr__(self, name: str) -> Any:
        """What else wandb's runs can do is nothing here, counted."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **named: self.ignore(f"run.{name}")

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
