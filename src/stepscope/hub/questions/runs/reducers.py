"""Fields of runs that are computed from points: `last10.KEY`, `metrics.KEY@best.OTHER`, and what GPUs used."""

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from stepscope.hub.questions.runs.run_filter import AllOf, Expression, ExpressionError, fields_of
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.gpu_use import gpu_use
from stepscope.hub.store.read.reductions import Budget, Reduced, TooManyPoints, means_of_last, values_at_best
from stepscope.hub.store.read.run_row import Latest, RunRow
from stepscope.model.point_fields import PointField, point_field

MAX_STEPS = 1000
_MAX_KNOWN = 100_000
"""When more values than this are known, all are forgotten."""
_SETTLED_NS = 60 * 10**9
"""So long after its last record every replica has all of a run: what is read earlier is not kept."""
_Known = dict[tuple[str, str, int], tuple[tuple[int, int], Reduced | None]]
"""By field, keys and run: how much the run had recorded, and the value."""
_caches: "WeakKeyDictionary[Engine, _Known]" = WeakKeyDictionary()
_lock = threading.Lock()
_HIGHER_IS_BETTER = re.compile(
    r"(^|[/._-])(acc|accuracy|rewards?|returns?|scores?|f1|auc|bleu|rouge|precision|recall|success|throughput)"
)
KeysByName = Mapping[str, Sequence[str]]
"""The keys that each metric name may stand for, the likeliest first."""


def check_point_field(field: str, position: int) -> None:
    """Raise ExpressionError for a mean of no steps, or of too many."""
    found = point_field(field)
    if found is not None and not found.by and not 1 <= found.steps <= MAX_STEPS:
        raise ExpressionError(f"{field!r} is the mean of 1 to {MAX_STEPS} steps: write last10.{found.key}", position)


def is_higher_better(key: str) -> bool:
    """Return whether high values of a metric are better, by its name."""
    return _HIGHER_IS_BETTER.search(key.lower()) is not None


def value_of(row: RunRow, keys: Sequence[str]) -> list[tuple[str, Latest]]:
    """The first of some metrics that a run has, with its latest value; empty when it has none of them."""
    for key in keys:
        if (latest := row.values.get(key)) is not None:
            return [(key, latest)]
    return []


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


def with_columns(
    engine: Engine, rows: Sequence[RunRow], fields: Iterable[str], keys_by_name: KeysByName, budget: Budget
) -> tuple[list[RunRow], dict[str, str]]:
    """Rows with the values of some fields, as far as the budget goes; and why the others are left out, by field."""
    made, left_out = list(rows), {}
    for field in fields:
        try:
            made = with_point_fields(engine, made, [field], keys_by_name, budget)
        except TooManyPoints as error:
            left_out[field] = str(error)
    return made, left_out


def with_point_fields(
    engine: Engine, rows: Sequence[RunRow], fields: Iterable[str], keys_by_name: KeysByName, budget: Budget
) -> list[RunRow]:
    """Rows with the values of some fields that are computed from points; TooManyPoints when that costs too much."""
    made = list(rows)
    for field, parts in point_fields_among(fields).items():
        lacking = [row for row in made if field not in row.reduced]
        found = _values(engine, lacking, field, parts, keys_by_name, budget)
        made = [
            replace(row, reduced={**row.reduced, field: value}) if (value := found.get(row.number)) else row
            for row in made
        ]
    return made


def _values(
    engine: Engine, rows: Sequence[RunRow], field: str, parts: PointField, keys_by_name: KeysByName, budget: Budget
) -> dict[int, Reduced]:
    keys = {row.number: _keys(row, parts, keys_by_name) for row in rows}
    places = {row.number: (field, "\n".join(keys[row.number]), row.number) for row in rows}
    version = {row.number: (row.received, row.counts.get("points", 0)) for row in rows}
    with _lock:
        cache = _caches.setdefault(engine, {})
        held = {run: cache[place] for run, place in places.items() if place in cache}
    known = {run: value for run, (seen, value) in held.items() if seen == version[run]}
    asked = {run: of_run for run, of_run in keys.items() if run not in known and len(of_run) == len(parts.metrics)}
    settled = time.time_ns() - _SETTLED_NS
    found = _read(engine, asked, parts, budget)
    with _lock:
        if len(cache) + len(asked) > _MAX_KNOWN:
            cache.clear()
        cache.update((places[run], (version[run], found.get(run))) for run in asked if version[run][0] < settled)
    return {run: value for run, value in {**known, **found}.items() if value is not None}


def _keys(row: RunRow, parts: PointField, keys_by_name: KeysByName) -> list[str]:
    """The keys that the metrics have in a run; fewer when it lacks one."""
    return [key for name in parts.metrics for key, _ in value_of(row, keys_by_name.get(name, ()))]


def _read(engine: Engine, keys: dict[int, list[str]], parts: PointField, budget: Budget) -> dict[int, Reduced]:
    if not keys:
        return {}
    if parts.by == "gpu":
        return gpu_use(engine, keys, parts.key)
    first = {run: of_run[0] for run, of_run in keys.items()}
    if not parts.by:
        return means_of_last(engine, first, parts.steps, budget)
    best = {run: (key, _is_highest(parts.by, key)) for run, (_, key) in keys.items()}
    return values_at_best(engine, first, best, budget)


def _is_highest(by: str, key: str) -> bool:
    return is_higher_better(key) if by == "best" else by == "max"
