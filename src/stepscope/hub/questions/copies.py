"""Copies of a run as text: points and records as lines of CSV or JSON."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from stepscope.hub.questions.distributions import DistributionRow
from stepscope.hub.questions.exemplars import ExemplarRow
from stepscope.hub.store import exact
from stepscope.hub.store.arrow import Points
from stepscope.hub.store.run_catalog import step_of
from stepscope.model.records import Histogram, Summary
from stepscope.wire.plain import plain, word

POINT = ("key", "axis", "rank", "attempt", "step", "time", "value", "attrs", "scope")
HISTOGRAM = (
    *("key", "axis", "rank", "attempt", "step", "time", "start", "type", "unit", "scope", "attrs"),
    *("count", "sum", "min", "max", "bounds", "counts", "scale", "zero_count", "zero_threshold"),
    *("positive_offset", "negative_offset", "negative_counts", "quantiles"),
)
EXEMPLAR = (
    *("key", "axis", "rank", "attempt", "step", "time", "value"),
    *("trace_id", "span_id", "attrs", "scope", "series_attrs"),
)
SPAN = (
    *("run", "rank", "attempt", "trace_id", "span_id", "parent_id", "name", "kind", "status", "message", "step"),
    *("axis", "start", "duration_ms", "scope", "attrs", "events", "links", "flags"),
)
RECORD = (
    *("kind", "run", "rank", "attempt", "time", "step", "axis", "trace_id", "span_id", "severity"),
    *("severity_number", "name", "body", "attrs", "scope", "observed", "flags"),
)


def point_rows(points: Points) -> Iterator[tuple[Any, ...]]:
    """The points one by one, in the order of `POINT`; times in seconds as text, to the nanosecond."""
    labels = [(line.key, line.axis or None, line.rank, plain(line.attrs), line.scope) for line in points.lines]
    columns = (points.which, points.attempt, points.step, points.time, points.value, points.rest)
    for which, attempt, step, time, value, rest in zip(*(column.tolist() for column in columns), strict=True):
        key, axis, rank, attrs, scope = labels[which]
        number = word(exact.whole(value, rest))
        yield key, axis, rank, attempt, step_of(step), exact_seconds(time), number, attrs, scope


def histogram_row(row: DistributionRow) -> dict[str, Any]:
    """A distribution by the names of `HISTOGRAM`; times in ns, and only what its kind has."""
    line, value = row.line, row.value
    made: dict[str, Any] = {
        "key": line.key,
        "axis": line.axis or None,
        "rank": line.rank,
        "attempt": row.attempt,
        "step": row.step,
        "time": row.time,
        "start": row.start or None,
        "unit": line.unit,
        "scope": line.scope,
        "attrs": line.attrs,
        "count": value.count,
        "sum": value.total,
    }
    if isinstance(value, Summary):
        return {**made, "type": "summary", "quantiles": [list(pair) for pair in value.quantiles]}
    made |= {"min": value.low, "max": value.high}
    if isinstance(value, Histogram):
        return {**made, "type": "histogram", "bounds": list(value.bounds), "counts": list(value.counts)}
    return {
        **made,
        "type": "exponential_histogram",
        "scale": value.scale,
        "zero_count": value.zeros,
        "zero_threshold": value.zero_threshold,
        "positive_offset": value.positive_offset,
        "counts": list(value.positive),
        "negative_offset": value.negative_offset,
        "negative_counts": list(value.negative),
    }


def exemplar_row(row: ExemplarRow) -> dict[str, Any]:
    """An exemplar by the names of `EXEMPLAR`; its time in ns."""
    line = row.line
    return {
        "key": line.key,
        "axis": line.axis or None,
        "rank": line.rank,
        "attempt": row.attempt,
        "step": row.step,
        "time": row.time,
        "value": row.value,
        "attrs": row.attrs,
        "scope": line.scope,
        "series_attrs": line.attrs,
        "trace_id": row.trace_id.hex() if row.trace_id else None,
        "span_id": row.span_id.hex() if row.span_id else None,
    }


def as_cells(names: Sequence[str], made: dict[str, Any]) -> list[Any]:
    """The fields of a distribution or exemplar as text files have them: times in seconds, to the nanosecond."""
    times = {name: exact_seconds(made[name]) for name in ("time", "start") if made.get(name) is not None}
    return [plain(value) for value in cells(names, {**made, **times})]


def exact_seconds(ns: int) -> str:
    """A time in seconds with all its digits."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 10**9}.{abs(ns) % 10**9:09d}"


def as_csv(names: Sequence[str], groups: Iterable[Iterable[Sequence[Any]]]) -> Iterator[bytes]:
    """Write groups of rows as one CSV file with a head, which comes with the first of them."""
    head = _csv([names])
    for rows in groups:
        yield head + _csv([as_text(value) for value in row] for row in rows)
        head = b""
    if head:
        yield head


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def as_text(value: Any) -> str | None:
    """A value in a cell: nested ones as JSON, none as nothing."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return str(value) if isinstance(value, int) else json.dumps(plain(value), ensure_ascii=False)


def as_jsonl(names: Sequence[str], groups: Iterable[Iterable[Sequence[Any]]]) -> Iterator[bytes]:
    """Write groups of rows as lines of JSON."""
    encode = msgspec.json.Encoder().encode
    for rows in groups:
        yield b"".join(encode(dict(zip(names, row, strict=True))) + b"\n" for row in rows)


def cells(names: Sequence[str], made: dict[str, Any]) -> list[Any]:
    """The fields of a record in the order of their names."""
    return [made.get(name) for name in names]
