"""SQL that several tables share: conditions, of which those not asked for are left out, and pages of series."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from stepscope.hub.store import literal

PAGE = 10_000
Row = TypeVar("Row")


def exactly(**numbers: int | None) -> list[str]:
    """Columns that equal a number."""
    return [f"{name} = {int(value)}" for name, value in numbers.items() if value is not None]


def named(name: str | None) -> list[str]:
    """The name of a record."""
    return [] if name is None else [f"name = {literal.text(name)}"]


def traced(trace_id: bytes | None, span_id: bytes | None) -> list[str]:
    """The trace and the span a record belongs to."""
    ids = {"trace_id": trace_id, "span_id": span_id}
    return [f"{name} = {literal.fixed(value)}" for name, value in ids.items() if value is not None]


def between(since: int | None, until: int | None) -> list[str]:
    """Times, both included."""
    found = [] if since is None else [f"time >= {int(since)}"]
    return found if until is None else [*found, f"time <= {int(until)}"]


def with_attrs(attrs: Mapping[str, str]) -> list[str]:
    """Attributes with these values, compared as text."""
    return [_has_attr(name, text) for name, text in attrs.items()]


def _has_attr(name: str, text: str) -> str:
    quoted = literal.text(name)
    value = f"attr_values[indexOf(attr_names, {quoted})]"
    return f"(has(attr_names, {quoted}) AND {value} = {literal.text(text)})"


def newest(
    read: Callable[[str], list[Row]], series: Collection[int], since: int | None, until: int | None, limit: int
) -> list[Row]:
    """Read the newest rows of some series between two times; `read` takes the SQL that follows the table."""
    if not series:
        return []
    where = " AND ".join((f"series IN {literal.integers(series)}", *between(since, until)))
    return read(f"WHERE {where} ORDER BY time DESC, series LIMIT {int(limit)}")


def pages(
    read: Callable[[str], list[Row]], series: Collection[int], order: str, page: int = PAGE
) -> Iterator[list[Row]]:
    """Yield all rows of some series page by page; `read` takes the SQL that follows the table."""
    offset = 0
    among = f"WHERE series IN {literal.integers(series)} ORDER BY {order}"
    while series and (rows := read(f"{among} LIMIT {offset}, {int(page)}")):
        yield rows
        offset += page
