"""Rows of runs with the fields that are computed from points; a run that did not change is not read again."""

import threading
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from stepscope.hub.questions.runs.point_fields import PointField, point_field
from stepscope.hub.questions.runs.run_fields import KeysByName, is_higher_better, value_of
from stepscope.hub.questions.runs.run_filter import AllOf, Expression, fields_of
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.reductions import Reduced, means_of_last, values_at_best
from stepscope.hub.store.read.run_catalog import RunRow

_MAX_KNOWN = 100_000
"""When more values than this are known, all are forgotten."""
_Known = dict[tuple[str, str, int], tuple[tuple[int, int], Reduced | None]]
"""By field, keys and run: how much the run had recorded, and the value."""
_caches: "WeakKeyDictionary[Engine, _Known]" = WeakKeyDictionary()
_lock = threading.Lock()


def point_fields_among(fields: Iterable[str]) -> dict[str, PointField]:
    """Those of some fields that are computed from points."""
    return {field: found for field in fields if (found := point_field(field)) is not None}


def apart(expression: Expression) -> tuple[Expression, Expression]:
    """The conditions that need no points, which are checked first, and the others."""
    parts = expression.parts if isinstance(expression, AllOf) else (expression,)
    of_points = [any(point_field(field) for field, _ in fields_of(part)) for part in parts]
    return (
        AllOf(tuple(part for part, dear in zip(parts, of_points, strict=True) if not dear)),
        AllOf(tuple(part for part, dear in zip(parts, of_points, strict=True) if dear)),
    )


def with_point_fields(
    engine: Engine, rows: Sequence[RunRow], fields: Iterable[str], keys_by_name: KeysByName
) -> list[RunRow]:
    """Rows with the values of some fields that are computed from points; TooManyPoints when that costs too much."""
    made = list(rows)
    for field, parts in point_fields_among(fields).items():
        found = _values(engine, made, field, parts, keys_by_name)
        made = [
            replace(row, reduced={**row.reduced, field: value}) if (value := found.get(row.number)) else row
            for row in made
        ]
    return made


def _values(
    engine: Engine, rows: Sequence[RunRow], field: str, parts: PointField, keys_by_name: KeysByName
) -> dict[int, Reduced]:
    keys = {row.number: _keys(row, parts, keys_by_name) for row in rows}
    places = {row.number: (field, "\n".join(keys[row.number]), row.number) for row in rows}
    version = {row.number: (row.received, row.counts.get("points", 0)) for row in rows}
    with _lock:
        cache = _caches.setdefault(engine, {})
        known = {
            run: held[1] for run, place in places.items() if (held := cache.get(place, ((0, 0),)))[0] == version[run]
        }
    asked = {run: of_run for run, of_run in keys.items() if run not in known and len(of_run) == len(parts.metrics)}
    found = _read(engine, asked, parts)
    with _lock:
        if len(cache) + len(asked) > _MAX_KNOWN:
            cache.clear()
        cache.update((places[run], (version[run], found.get(run))) for run in asked)
    return {run: value for run, value in {**known, **found}.items() if value is not None}


def _keys(row: RunRow, parts: PointField, keys_by_name: KeysByName) -> list[str]:
    """The keys that the metrics have in a run; fewer when it lacks one."""
    return [key for name in parts.metrics for key, _ in value_of(row, keys_by_name.get(name, ()))]


def _read(engine: Engine, keys: dict[int, list[str]], parts: PointField) -> dict[int, Reduced]:
    if not keys:
        return {}
    first = {run: of_run[0] for run, of_run in keys.items()}
    if not parts.by:
        return means_of_last(engine, first, parts.steps)
    best = {run: (key, _is_highest(parts.by, key)) for run, (_, key) in keys.items()}
    return values_at_best(engine, first, best)


def _is_highest(by: str, key: str) -> bool:
    return is_higher_better(key) if by == "best" else by == "max"
