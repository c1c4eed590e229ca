"""Rows of a user-supplied query as JSON has them: values that any reader can show, and their sizes."""

import datetime
import decimal
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from stepscope.hub.store.engine import Head, holds_octets, too_long


def readable_rows(head: Head, rows: Iterable[Sequence[Any]], longest: int) -> Iterator[tuple[list[Any], int]]:
    """Make rows of Python values readable; each with its size as JSON. EngineError for one that is too long."""
    octets = [holds_octets(type) for _, type in head]
    for row in rows:
        made = [_readable(value, hexed) for value, hexed in zip(row, octets, strict=True)]
        size = len(msgspec.json.encode(made))
        if size > longest:
            raise too_long(longest)
        yield made, size


def _readable(value: Any, octets: bool = False) -> Any:
    """A value as ClickHouse's JSON has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return value.hex() if octets else value.decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_readable(each, octets) for each in value]
    if isinstance(value, dict):
        return {str(_readable(key)): _readable(each) for key, each in value.items()}
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    return str(value)
