"""The shape of a source: it recognises files of one tool, and reads the runs in them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from stepscope.model.records import Metric
from stepscope.wire.wandb_rows import split_row

Skip = Callable[[str, int], None]
"""Counts what cannot be imported, by reason."""


class Chunk(NamedTuple):
    """Packed records of a part, in the order of the source, and the position behind them."""

    records: list[bytes]
    position: dict[str, Any]
    points: int
    """Metric values among the records."""
    done: int
    """How much of the part has been read, in its own units."""


class Part(Protocol):
    """One file or table of a run. It may grow; reading goes on from the position of the last chunk."""

    name: str
    attempt: int
    time: int
    """When it began, in ns; 0 when unknown."""

    def size(self) -> int:
        """The size of all there is now, in the units of `Chunk.done`."""

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield everything behind a position that is there now."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that a source found."""

    id: str
    """The same whenever the same files are imported."""
    project: str
    name: str
    parts: list[Part]
    config: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    status: str = "finished"


class Source(Protocol):
    """A tool whose files can be imported."""

    name: str

    def find(self, path: Path) -> list[FoundRun]:
        """Return the runs in a file or below a folder; none when there are no files of this tool."""


_pack = msgspec.msgpack.Encoder().encode


def add_row(
    records: list[bytes], time: int, step: int | None, category: str | None, row: Mapping[str, Any], skip: Skip
) -> int:
    """Append a metric with the numbers of a row, nested ones under joined keys, and return how many they are."""
    values, others = split_row(row)
    for value in others.values():
        kind = value.get("_type") if isinstance(value, Mapping) else None
        skip("values that are not numbers" if kind is None else f"values of type {kind}", 1)
    if values:
        records.append(_pack(Metric(time, step, None, category, values)))
    return len(values)
