"""The rows that answer a user-supplied query, in blocks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stepscope.hub.store.engine import EngineError, RowStream

_BLOCK_BYTES = 256 * 1024
_OCTETS = re.compile(r"(?:(?:Array|Nullable|LowCardinality)\()*FixedString\(\d+\)+")
"""Types of ids, and of lists of them."""
Head = Sequence[tuple[str, str]]
"""The names and types of columns."""


def row_stream(head: Head, rows: Iterable[tuple[list[Any], int]], most: int) -> RowStream:
    """Make the answer of rows, each with its size in bytes, which are read as they are wanted; `most` of them."""

    def blocks() -> Iterator[list[list[Any]]]:
        block: list[list[Any]] = []
        size = count = 0
        for row, bytes in rows:
            if count == most:
                stream.more = True
                break
            block.append(row)
            size, count = size + bytes, count + 1
            if size >= _BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block

    stream = RowStream([name for name, _ in head], [type for _, type in head], blocks())
    return stream


def holds_octets(type: str) -> bool:
    """Return whether a column holds ids, which are shown in hexadecimal."""
    return _OCTETS.fullmatch(type) is not None


def too_long(most: int) -> EngineError:
    """The refusal of a row with more bytes."""
    return EngineError(f"a row of the answer is larger than {most >> 20} MiB")
