"""Metric definitions: which measurements of which bus events become metrics."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepscope.extend import bounds_for, is_ordered, text_of
from stepscope.model.errors import ConfigError
from stepscope.training.bus.event_bus import Name, event_name

KINDS = ("counter", "sum", "last_value", "summary", "distribution")
ENDS = ("stop", "exception")
"""The last parts of the events that end a span; a metric named after a span is measured at both."""

_TIMES = {"native": 1e-9, "nanosecond": 1e-9, "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0}
_SIZES = {"byte": 1.0, "kilobyte": 1e3, "megabyte": 1e6, "gigabyte": 1e9, "terabyte": 1e12}
_OTEL_UNITS = {
    "native": "ns", "nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s",
    "byte": "By", "kilobyte": "kBy", "megabyte": "MBy", "gigabyte": "GBy", "terabyte": "TBy", "unit": "",
}  # fmt: skip
"""OpenTelemetry's names of units."""
Unit = str | tuple[str, str]
"""The unit of the metric, or a pair to convert: (unit of the measurement, unit of the metric). `native` is ns."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. Definitions are identified by kind and name."""

    kind: str
    name: str
    events: tuple[Name, ...]
    """The events it is measured at."""
    measurement: str | Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
    """The key of the measurement, or a function of the measurements and the metadata."""
    tags: tuple[str, ...] = ()
    unit: str = ""
    factor: float = 1.0
    """The factor that converts a measurement to the unit of the metric."""
    buckets: tuple[float, ...] = ()
    description: str = ""
    keep: Callable[[Mapping[str, Any]], Any] | None = None
    """Decides from the metadata whether an event is measured."""
    tag_values: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Converts the metadata to the mapping that tags are read from."""

    def value(self, measurements: Mapping[str, Any], metadata: Mapping[str, Any]) -> float | None:
        """The number to record, in the unit of the metric; None when the event lacks the measurement."""
        if self.kind == "counter":
            return 1
        of = self.measurement
        found: Any = of(measurements, metadata) if callable(of) else measurements.get(of)
        if found is None:
            return None
        if self.factor == 1.0:
            return found if isinstance(found, (int, float)) else float(found)
        return float(found) * self.factor

    def labels(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The tags of an event; those missing or None in the metadata are left out."""
        if not self.tags:
            return {}
        known = metadata if self.tag_values is None else self.tag_values(metadata)
        return {tag: _plain(known[tag]) for tag in self.tags if known.get(tag) is not None}


def counter(name: Any, **options: Any) -> Definition:
    """Count events."""
    return _define("counter", name, options)


def sum(name: Any, **options: Any) -> Definition:  # the published name
    """Sum measurements, which may be negative."""
    return _define("sum", name, options)


def last_value(name: Any, **options: Any) -> Definition:
    """Keep the last measurement."""
    return _define("last_value", name, options)


def summary(name: Any, **options: Any) -> Definition:
    """Summarize measurements: count, sum and quantiles."""
    return _define("summary", name, options)


def distribution(name: Any, **options: Any) -> Definition:
    """Count measurements in buckets: those of `reporter_options`, else defaults for the unit."""
    return _define("distribution", name, options)


def listed(given: Any) -> list[Definition]:
    """The definitions of a reporter without duplicates; ConfigError for anything else."""
    try:
        found = list(given)
    except Exception:  # not iterable, or a user's iterator raised
        found = [given]
    for each in found:
        if not isinstance(each, Definition):
            what = type(each).__name__
            raise ConfigError(
                f"reporter: {what} is not a definition; pass a list, such as [counter('http.request.count')]"
            )
    return list(dict.fromkeys(found))


def _define(kind: str, name: Any, options: Mapping[str, Any]) -> Definition:
    """Create a definition; ConfigError when it is invalid."""
    known = list(inspect.signature(_make).parameters)[2:]
    unknown = [key for key in options if key not in known]
    if unknown:
        raise ConfigError(f"metric {name!r}: unknown option {', '.join(unknown)}; known are {', '.join(known)}")
    return _make(kind, name, **options)


def _make(
    kind: str,
    name: Any,
    *,
    event_name: Any = None,
    measurement: Any = None,
    tags: Any = (),
    unit: Any = "",
    buckets: Any = None,
    reporter_options: Any = None,
    description: Any = "",
    keep: Callable[..., Any] | None = None,
    drop: Callable[..., Any] | None = None,
    tag_values: Callable[..., Any] | None = None,
) -> Definition:
    parts = _name(name)
    if len(parts) < 2 and event_name is None:
        raise ConfigError(
            f"metric {name!r}: the name must contain an event and a measurement, such as 'http.request.duration'"
        )
    if keep is not None and drop is not None:
        raise ConfigError(f"metric {name!r}: pass keep or drop, not both")
    for option, function in (("keep", keep), ("drop", drop), ("tag_values", tag_values)):
        if function is not None and not callable(function):
            raise ConfigError(f"metric {name!r}: {option} must be a function of the metadata")
    dropped = drop
    is_kept = keep if dropped is None else lambda metadata: not dropped(metadata)
    unit_name, factor = _unit(name, unit)
    bounds = _buckets(name, buckets, reporter_options)
    return Definition(
        kind,
        ".".join(parts),
        _events(parts, event_name),
        _measurement(name, parts[-1] if measurement is None else measurement),
        _tags(name, tags),
        unit_name,
        factor,
        bounds_for(unit_name, bounds) if kind == "distribution" else (),
        text_of(description),
        is_kept,
        tag_values,
    )


def _tags(name: Any, tags: Any) -> tuple[str, ...]:
    try:
        if not isinstance(tags, (str, bytes, Mapping)):
            return tuple(text_of(tag) for tag in tags)
    except Exception:  # not iterable, or a user's iterator raised
        pass
    raise ConfigError(f"metric {name!r}: tags must be a list of names, such as ['status'], got {tags!r}")


def _buckets(name: Any, given: Any, reporter_options: Any) -> tuple[float, ...] | None:
    """The bounds from the argument or from `reporter_options`; None without either."""
    if reporter_options is not None and not isinstance(reporter_options, Mapping):
        raise ConfigError(f"metric {name!r}: reporter_options must be a mapping, such as {{'buckets': [10, 100]}}")
    if given is None:
        given = (reporter_options or {}).get("buckets")
    if given is None:
        return None
    try:
        bounds = tuple(float(bound) for bound in given)
        if bounds and not isinstance(given, (str, bytes)) and is_ordered(bounds):
            return bounds
    except Exception:  # not iterable, or not numbers
        pass
    raise ConfigError(f"metric {name!r}: buckets must be numbers in ascending order, got {given!r}")


def _measurement(name: Any, measurement: Any) -> Any:
    """A key, or a function of (measurements, metadata); a function of one argument is wrapped."""
    if isinstance(measurement, str):
        return measurement
    if not callable(measurement):
        raise ConfigError(f"metric {name!r}: measurement must be a name or a function")
    try:
        inspect.signature(measurement).bind({})
    except TypeError:
        return measurement
    except ValueError:  # a C function without a signature
        pass
    return lambda measurements, metadata: measurement(measurements)


def _events(parts: Name, given: Any) -> tuple[Name, ...]:
    """The given event, else the metric's name without its last part: that event, and the ends of that span."""
    if given is not None:
        return (_name(given),)
    event = parts[:-1]
    return (event, *((*event, end) for end in ENDS)) if event[-1] not in (*ENDS, "start") else (event,)


def _name(given: Any) -> Name:
    found = event_name(given)
    if found is None or not all(found):
        raise ConfigError(
            f"metric {given!r}: a name must be a list of strings or one string with dots, such as 'http.request.count'"
        )
    return found


def _unit(name: Any, unit: Any) -> tuple[str, float]:
    """The metric's unit by OpenTelemetry's name, and the conversion factor."""
    if isinstance(unit, str):
        return _OTEL_UNITS.get(unit, unit), 1.0
    try:
        source, target = unit
        for known in (_TIMES, _SIZES):
            if source in known and target in known:
                return _OTEL_UNITS[target], known[source] / known[target]
    except (TypeError, ValueError):
        pass
    known_units = ", ".join((*_TIMES, *_SIZES))
    raise ConfigError(
        f"metric {name!r}: unit must be a name or a pair of time or size units ({known_units}), got {unit!r}"
    )


def _plain(value: Any) -> Any:
    """A tag as a type that records can hold."""
    return value if isinstance(value, (str, int, float, bool)) else text_of(value)
