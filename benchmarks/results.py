"""What a measurement yields: one row of numbers per case and subject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

OURS = "stepscope"
NO_SUCH_CALL = "has no such call"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of one subject in one case; `skipped` says why there are none."""

    measure: str
    case: str
    subject: str
    stats: dict[str, float] = field(default_factory=dict)
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How thorough a run is, and whom it measures."""

    quick: bool
    subjects: tuple[str, ...]


def best(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the lowest value of each statistic over repeated rounds."""
    return {name: min(row[name] for row in rows) for name in rows[0]}
