"""SQL that several questions share: the conditions of a search for records, and pages of series."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from stepscope.hub.store import literal
from stepscope.model.records import EVENT, LOG

PAGE = 10_000
Row = TypeVar("Row")
_KINDS = {"log": LOG, "event": EVENT}


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A search for spans, logs, events or alerts; the conditions that are given must all hold."""

    run: int | None = None
    step: int | None = None
    rank: int | None = None
    ranks: Collection[int] | None = None
    """Any of these ranks."""
    name: str | None = None
    attrs: Mapping[str, str] = field(default_factory=dict)
    """Attributes and their values, compared as text."""
    trace_id: bytes | None = None
    span_id: bytes | None = None
    since: int | None = None
    until: int | None = None
    status: int | None = None
    """Of spans only, as `min_duration`."""
    min_duration: int | None = None
    open: bool = False
    """Spans that have not ended, instead of those that did."""
    kind: Literal["log", "event"] | None = None
    """Of logs and events only."""
    text: str | None = None
    """A text in body or name, ignoring case; of logs, events and alerts only, as `severity`."""
    severity: int | None = None
    """The least severity."""
    order: Literal["newest", "oldest", "slowest"] = "newest"
    """`slowest` is for spans only."""
    limit: int = 100
    offset: int = 0

    def conditions(self) -> str:
        """The conditions in SQL."""
        numbers = {"run": self.run, "step": self.step, "rank": self.rank, "status": self.status}
        numbers["kind"] = None if self.kind is None else _KINDS[self.kind]
        found = [f"{name} = {int(value)}" for name, value in numbers.items() if value is not None]
        found += [] if self.ranks is None else [f"rank IN {literal.integers(self.ranks)}" if self.ranks else "0"]
        found += [] if self.name is None else [f"name = {literal.text(self.name)}"]
        ids = {"trace_id": self.trace_id, "span_id": self.span_id}
        found += [f"{name} = {literal.fixed(value)}" for name, value in ids.items() if value is not None]
        found += [*between(self.since, self.until), *(_has_attr(*pair) for pair in self.attrs.items())]
        least = {"duration": self.min_duration, "severity": self.severity}
        found += [f"{name} >= {int(value)}" for name, value in least.items() if value is not None]
        if self.text:
            text = literal.text(self.text)
            found.append(f"(positionCaseInsensitiveUTF8(body, {text}) + positionCaseInsensitiveUTF8(name, {text}) > 0)")
        return " AND ".join(found) or "1"


def between(since: int | None, until: int | None) -> list[str]:
    """A range of times, both included."""
    found = [] if since is None else [f"time >= {int(since)}"]
    return found if until is None else [*found, f"time <= {int(until)}"]


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
