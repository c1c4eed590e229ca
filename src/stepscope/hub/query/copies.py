"""Copies of a run as text: points and records as lines of CSV or JSON."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from stepscope.hub.store.read.points import Points
from stepscope.hub.store.read.runs import step_of
from stepscope.wire.plain import plain, word

POINT = ("key", "axis", "rank", "attempt", "step", "time", "value", "attrs")
SPAN = (
    *("run", "rank", "attempt", "trace_id", "span_id", "parent_id", "name", "kind", "status", "message", "step"),
    *("axis", "start", "duration_ms", "scope", "attrs", "events", "links"),
)
RECORD = (
    *("kind", "run", "rank", "attempt", "time", "step", "axis", "trace_id", "span_id", "severity"),
    *("severity_number", "name", "body", "attrs"),
)


def point_rows(points: Points) -> Iterator[tuple[Any, ...]]:
    """The points one by one, in the order of `POINT`; times in seconds as text, to the nanosecond."""
    labels = [(line.key, line.axis or None, line.rank, plain(line.attrs)) for line in points.lines]
    columns = (points.which, points.attempt, points.step, points.time, points.value)
    for which, attempt, step, time, value in zip(*(column.tolist() for column in columns), strict=True):
        key, axis, rank, attrs = labels[which]
        yield key, axis, rank, attempt, step_of(step), exact_seconds(time), word(value), attrs


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
