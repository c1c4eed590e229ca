"""The fields of runs that a filter and a sort can use, and pages of the sorted table."""

import base64
import binascii
import datetime
import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from stepscope.hub.questions.runs.reducers import KeysByName, check_point_field
from stepscope.hub.questions.runs.reducers import is_higher_better as is_higher_better
from stepscope.hub.questions.runs.run_filter import (
    AllOf,
    Among,
    Compare,
    Expression,
    ExpressionError,
    Not,
    Search,
    Value,
    fields_of,
    holds,
    words_of,
)
from stepscope.hub.questions.series.metric_keys import WELL_KNOWN, nearest
from stepscope.hub.runs.run_states import RunStatus
from stepscope.hub.store.columns import Floats
from stepscope.hub.store.read.run_row import Latest, RunRow
from stepscope.model import names
from stepscope.model.errors import StepscopeError
from stepscope.model.point_fields import GPU_FIELDS, point_field
from stepscope.model.run_description import tag_text

TIMES = ("created", "started", "seen", "received")
PLAIN = (
    "id",
    "project",
    "name",
    "step",
    "attempts",
    "ranks",
    "world_size",
    "hosts",
    "notes",
    "group",
    "job_type",
    "parent",
    "findings",
)
COUNTS = ("points", "spans", "logs", "events", "alerts", "rejected")
NUMBERS = frozenset(("step", "attempts", "ranks", "world_size", "findings", *COUNTS, *GPU_FIELDS))
_AMOUNT = re.compile(r"([+-]?(?:\d++\.?\d*|\.\d+)(?:[eE][+-]?\d+)?) ?(ms|s|m|h|d|)")
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
FIELDS = (*PLAIN, "tags", "archived", "status", "duration", *TIMES, *COUNTS, *GPU_FIELDS)
"""The fields that filter and sort take, besides `config.X`, `metrics.X`, `min.X`, `max.X`, `best.X`, `last10.X`,
`metrics.X@best.Y` and `tag.X`."""
ALIASES = {"run": "id", "host": "hosts", "state": "status", "tag": "tags", "note": "notes"}
REDUCERS = ("min", "max", "best")
"""Besides the last value, `metrics.X`: of all values of a metric."""
_OF_METRIC = ("metrics", *REDUCERS)
_OPEN = ("config.", "metrics.", "tag.", *(f"{name}." for name in REDUCERS), "tags.")
StatusOf = Callable[[RunRow], RunStatus]


class CursorError(StepscopeError, ValueError):
    """The cursor was not made by the hub."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the matching runs; `following` is the cursor of the next page."""

    rows: list[RunRow]
    matched: int
    following: str | None


def metrics_among(fields: Sequence[str]) -> list[str]:
    """The names of the metrics among some fields."""
    return [name for field in fields if field not in FIELDS for _, name in metrics_of(field)]


def metrics_of(field: str) -> list[tuple[str, str]]:
    """The metrics that a field is about, each with the kind of field that has it; none for any other field."""
    if (found := point_field(field)) is not None:
        return [("metrics", name) for name in found.metrics]
    kind, _, name = field.partition(".")
    return [(kind, name)] if kind in _OF_METRIC else []


def best_of(key: str, latest: Latest) -> float:
    """The best value of a metric: the highest of what should be high by its name, else the lowest."""
    return latest.high if is_higher_better(key) else latest.low


_REDUCE: Mapping[str, Callable[[str, Latest], float]] = {
    "min": lambda key, latest: latest.low,
    "max": lambda key, latest: latest.high,
    "best": best_of,
}


def _last(keys: Sequence[str]) -> Callable[[RunRow], float | None]:
    """Return what reads the last value of the first of some metrics that a run has; None without one."""

    def look(row: RunRow) -> float | None:
        values = row.values
        for key in keys:
            if (latest := values.get(key)) is not None:
                return latest.value
        return None

    return look


def _extreme(kind: str, keys: Sequence[str]) -> Callable[[RunRow], float | None]:
    """Return what reads an extreme of the first of some metrics that a run has; None without a finite one."""
    reduce = _REDUCE[kind]

    def look(row: RunRow) -> float | None:
        values = row.values
        for key in keys:
            if (latest := values.get(key)) is not None:
                return found if math.isfinite(found := reduce(key, latest)) else None
        return None

    return look


def check_present(
    fields: Iterable[tuple[str, int]], rows: Sequence[RunRow], keys_by_name: KeysByName, known: Callable[[], list[str]]
) -> None:
    """Raise ExpressionError for a metric or setting that no run has, suggesting similar ones."""
    for field, position in fields if rows else ():
        field = ALIASES.get(field, field)
        about = [("config", field[7:])] if field.startswith("config.") else metrics_of(field)
        for kind, rest in about if field not in FIELDS else ():
            look = getter(f"{kind}.{rest}", lambda row: RunStatus("finished"), keys_by_name)
            if any(look(row) is not None for row in rows):
                continue
            others = [*WELL_KNOWN, *known()] if kind in _OF_METRIC else _settings(rows)
            near = [f"{kind}.{name}" for name in nearest(rest, others)]
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ExpressionError(f"no run has {kind}.{rest}{hint}", position)


def _settings(rows: Sequence[RunRow]) -> list[str]:
    return list(dict.fromkeys(path for row in rows for path in row.settings))


def check_field(field: str, position: int) -> str:
    """Resolve the aliases of a field; ExpressionError for a field that runs do not have."""
    field = ALIASES.get(field, field)
    check_point_field(field, position)
    if field in FIELDS or point_field(field) is not None or (field.startswith(_OPEN) and not field.endswith(".")):
        return field
    known = ", ".join((*FIELDS, *(f"{prefix}X" for prefix in _OPEN[:6]), "last10.X", "metrics.X@best.Y"))
    name = field.removeprefix("metric.").removeprefix("settings.")
    near = difflib.get_close_matches(field, FIELDS, 1, 0.8) or [f"metrics.{name}", f"config.{name}"]
    hint = f"did you mean {' or '.join(near)}?"
    raise ExpressionError(f"runs have no field {field!r}; {hint} They have {known}", position)


def check_column(field: str) -> str:
    """Return a field that is computed from points; ExpressionError for any other."""
    check_point_field(field, 0)
    if point_field(field) is None:
        raise ExpressionError(
            f"a column is last10.KEY, metrics.KEY@best.OTHER or one of {', '.join(GPU_FIELDS)}, not {field[:200]!r}", 0
        )
    return field


def check(expression: Expression) -> list[str]:
    """List the fields of an expression; ExpressionError for one that runs do not have, or that has no operator."""
    for word in words_of(expression):
        if word.text in ("status", "state") or word.text.startswith(_OPEN):
            raise ExpressionError(f"expected one of = != < <= > >= ~ or `in` after {word.text!r}", word.position)
    return [check_field(field, position) for field, position in fields_of(expression)]


def getter(field: str, state: StatusOf, keys_by_name: KeysByName) -> Callable[[RunRow], Any]:
    """Return the function that reads a field of a run, or None where it has none. Times are seconds since 1970."""
    field = ALIASES.get(field, field)
    if field in PLAIN:
        return operator.attrgetter(field)
    if field in TIMES:
        look = operator.attrgetter(field)
        return lambda row: look(row) / 1e9 or None
    if field == "status":
        return lambda row: state(row).state
    if field == "duration":
        return duration
    if field == "archived":
        return operator.attrgetter("archived")
    if field == "tags":
        return tag_words
    if field in COUNTS:
        return lambda row: row.counts.get(field, 0)
    if point_field(field) is not None:
        return lambda row: None if (found := row.reduced.get(field)) is None else found.value
    kind, _, rest = field.partition(".")
    if kind in _OF_METRIC:
        keys = keys_by_name.get(rest) or names.spellings(rest)
        return _last(keys) if kind == "metrics" else _extreme(kind, keys)
    if kind == "config":
        return lambda row: _inside(row.beginning.get("config"), rest)
    return lambda row: _tag(row, rest)


def duration(row: RunRow) -> float | None:
    """How long a run lasted until its latest record, in seconds; None when it has none."""
    return (row.seen - row.started) / 1e9 if row.seen > 0 and row.started else None


def tag_words(row: RunRow) -> list[str] | None:
    """The tags of a run, each by its name and, where it has a value, as `name=value` too; None for no tags."""
    words = [*row.tags, *(tag_text(name, value) for name, value in row.tags.items() if value is not True)]
    return words or None


def _tag(row: RunRow, name: str) -> Any:
    tagged = _inside(row.tags, name)
    return _inside(row.beginning, name) if tagged is None else tagged


def _inside(value: Any, path: str) -> Any:
    """Follow a dotted path into nested settings; a setting whose own name has dots is found too."""
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    first, dot, rest = path.partition(".")
    return _inside(value.get(first), rest) if dot else None


def select(rows: Sequence[RunRow], expression: Expression, state: StatusOf, keys_by_name: KeysByName) -> list[RunRow]:
    """The rows that match an expression."""
    if expression == AllOf(()):
        return list(rows)
    typed = _typed(expression)
    getters = {field: getter(field, state, keys_by_name) for field, _ in fields_of(expression)}

    def matches(row: RunRow) -> bool:
        return holds(typed, lambda field: getters[field](row))

    return [row for row in rows if matches(row)]


def _typed(expression: Expression) -> Expression:
    """Read the values that numbers, durations and times are compared with; ExpressionError for invalid ones."""
    if isinstance(expression, Compare):
        if expression.operator == "~":
            return expression
        return replace(expression, value=_value(expression.field, expression.value, expression.position))
    if isinstance(expression, Among):
        values = tuple(_value(expression.field, value, expression.position) for value in expression.values)
        return replace(expression, values=values)
    if isinstance(expression, Not):
        return Not(_typed(expression.inner))
    if isinstance(expression, Search):
        return expression
    return replace(expression, parts=tuple(map(_typed, expression.parts)))


def _value(field: str, value: Value, position: int) -> Value:
    """A value as a field needs it; one that is a number already, or none, is left as it is."""
    if value.number is not None or value.text.lower() in ("none", "null"):
        return value
    if field in TIMES:
        return Value(value.text, _moment(value.text, position))
    if field != "duration" and field not in NUMBERS and not metrics_of(field):
        return value
    lasts = field == "duration"
    amount = _AMOUNT.fullmatch(value.text.strip())
    if amount is not None and (lasts or not amount[2]):
        return Value(value.text, float(amount[1]) * _SECONDS[amount[2]])
    wanted = "a duration: write 90, 90s, 1.5h or 2d" if lasts else f"a number, and {field} is one"
    raise ExpressionError(f"{value.text!r} is not {wanted}", position)


def _moment(text: str, position: int) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ExpressionError(f"{text!r} is not a date: write 2026-11-15 or seconds", position) from None


def page(
    rows: Sequence[RunRow], sort: str, cursor: str | None, limit: int, state: StatusOf, keys_by_name: KeysByName
) -> Page:
    """Sort rows by a field (`-` in front: the highest first, runs without it last) and return a page."""
    ordered = _sorted(rows, getter(sort.removeprefix("-"), state, keys_by_name), descending=sort.startswith("-"))
    start = 0 if cursor is None else _after(ordered, cursor)
    shown = ordered[start : start + limit]
    more = start + limit < len(ordered)
    return Page(shown, len(ordered), _cursor(start + limit, shown[-1].number) if more and shown else None)


def _sorted(rows: Sequence[RunRow], look: Callable[[RunRow], Any], *, descending: bool) -> list[RunRow]:
    """Rows by a value, and by their number where it is the same: numbers, then texts; those without a value last."""
    values = list(map(look, rows))
    if {float, type(None)}.issuperset(map(type, values)):
        return _by_floats(rows, np.array(values, np.float64), descending=descending)
    numbers: list[tuple[float, int, RunRow]] = []
    texts: list[tuple[str, int, RunRow]] = []
    absent: list[RunRow] = []
    for row, value in zip(rows, values, strict=True):
        if value is None or value != value:  # NaN is not equal to itself
            absent.append(row)
        elif isinstance(value, (int, float)):
            numbers.append((value, row.number, row))
        else:
            texts.append((str(value), row.number, row))
    numbers.sort(reverse=descending)  # the numbers of runs differ, so rows are not compared
    texts.sort(reverse=descending)
    present = (texts, numbers) if descending else (numbers, texts)
    return [*(row for _, _, row in present[0]), *(row for _, _, row in present[1]), *absent]


def _by_floats(rows: Sequence[RunRow], values: Floats, *, descending: bool) -> list[RunRow]:
    """Rows by a value and by their number; those whose value is NaN last."""
    absent = np.isnan(values)
    places = np.flatnonzero(~absent)
    numbers = np.array([row.number for row in rows], np.int64)[places]
    order = places[np.lexsort((numbers, values[places]))]
    order = order[::-1] if descending else order
    return [rows[at] for at in (*order.tolist(), *np.flatnonzero(absent).tolist())]


def _cursor(position: int, number: int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([position, number])).decode().rstrip("=")


def _after(ordered: Sequence[RunRow], cursor: str) -> int:
    """The start of the page after a cursor: behind its run, or at its position when the run is gone."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        position, number = msgspec.json.decode(text, type=tuple[int, int])
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise CursorError("the cursor is not valid: use `next` of the page before") from None
    found: Iterator[int] = (at for at, row in enumerate(ordered) if row.number == number)
    at = next(found, None)
    return max(position, 0) if at is None else at + 1
