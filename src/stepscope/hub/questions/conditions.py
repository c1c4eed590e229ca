"""Conditions that several tables share, in SQL; one that was not asked for is left out."""

from collections.abc import Mapping

from stepscope.hub.store import literal


def exactly(**numbers: int | None) -> list[str]:
    """Columns that hold a number."""
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


def carrying(attrs: Mapping[str, str]) -> list[str]:
    """Attributes with values of these texts."""
    return [_carries(name, text) for name, text in attrs.items()]


def _carries(name: str, text: str) -> str:
    quoted = literal.text(name)
    value = f"attr_values[indexOf(attr_names, {quoted})]"
    return f"(has(attr_names, {quoted}) AND {value} = {literal.text(text)})"
