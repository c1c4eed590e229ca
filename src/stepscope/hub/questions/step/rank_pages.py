"""Pages of ranks: which ranks of a step are answered first, and a summary of the spans of all."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median_low
from typing import Any

from msgspec import Struct

from stepscope.hub.questions.toolbox.params import (
    INTEGER,
    MS,
    TEXT,
    list_of,
    milliseconds,
    nullable,
    object_of,
)
from stepscope.hub.questions.traces.stored_spans import SpanRow
from stepscope.hub.store.engine import Engine

MAX_GROUPS = 200_000
"""Names of spans, of all ranks together, that are read of one step; more are left out."""
MAX_NAMES = 50
"""Names of spans in the summary: those that took longest."""


class RankSpans(Struct, frozen=True, gc=False):
    """The spans of one name on a rank at a step, in one attempt."""

    rank: int
    attempt: int
    name: str
    begin: int
    end: int
    spent: int
    failed: int


@dataclass(frozen=True, slots=True)
class RankPage:
    """The part of the ranks that is asked for; `first` are ranks that come before all others."""

    limit: int
    offset: int = 0
    first: Sequence[int] = ()

    def choose(self, outline: Sequence[RankSpans], odd: Mapping[int, float]) -> list[int]:
        """Return the ranks of this page.

        After those that come first: the one that ended last, then by turns the oddest and the slowest. `odd` has how
        odd the values of each rank are.
        """
        extents, failed = extents_of(outline), _failures(outline)
        lasting = {rank: end - begin for rank, (begin, end) in extents.items()}
        ranks = sorted(extents.keys() | odd.keys())
        last = last_rank(extents)
        oddest = sorted(
            (rank for rank in ranks if failed.get(rank) or odd.get(rank)),
            key=lambda rank: (-failed.get(rank, 0), -odd.get(rank, 0.0), rank),
        )
        slowest = sorted(ranks, key=lambda rank: (-lasting.get(rank, 0), rank))
        by_turns = (rank for pair in zip_longest(oddest, slowest) for rank in pair)
        known = set(ranks)
        order = dict.fromkeys(rank for rank in (*self.first, last, *by_turns) if rank in known)
        return [*order][self.offset : self.offset + self.limit]


def read_outline(engine: Engine, run: int, step: int) -> list[RankSpans]:
    """Read what the spans of each name took on each rank, without the spans themselves."""
    found = engine.query(
        f"""SELECT rank, attempt, name, min(time) AS began, max(time + duration) AS ended, sum(duration) AS spent,
            countIf(status = 2) AS failed
        FROM spans WHERE run = {run} AND step = {step} GROUP BY rank, attempt, name
        ORDER BY rank, attempt, name LIMIT {MAX_GROUPS}"""
    )
    return [RankSpans(*row) for row in found.rows()]


def outline_of(spans: Iterable[SpanRow]) -> list[RankSpans]:
    """Return the same of spans that were read."""
    return [
        RankSpans(
            row.rank,
            row.attempt,
            row.span.name,
            row.span.time,
            row.span.time + (row.span.duration or 0),
            row.span.duration or 0,
            int(row.span.status == 2),
        )
        for row in spans
    ]


def extents_of(outline: Iterable[RankSpans]) -> dict[int, tuple[int, int]]:
    """The begin of the first and the end of the last span of each rank."""
    found: dict[int, tuple[int, int]] = {}
    for each in outline:
        first, last = found.get(each.rank, (each.begin, each.end))
        found[each.rank] = min(first, each.begin), max(last, each.end)
    return found


def last_rank(extents: Mapping[int, tuple[int, int]]) -> int | None:
    """The rank whose spans ended last, of several the lowest; None without any."""
    return min(extents, key=lambda rank: (-extents[rank][1], rank), default=None)


def _failures(outline: Iterable[RankSpans]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for each in outline:
        found[each.rank] += each.failed
    return found


def summary(outline: Iterable[RankSpans], usual: Mapping[str, float]) -> list[dict[str, Any]]:
    """The time that the spans of each name took on the fastest, the median and the slowest rank, longest first."""
    by_name: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for each in outline:
        by_name[each.name][each.rank] += each.spent
    longest = sorted(by_name.items(), key=lambda item: (-max(item[1].values()), item[0]))
    return [_summed(name, spent, usual) for name, spent in longest[:MAX_NAMES]]


def _summed(name: str, spent: Mapping[int, int], usual: Mapping[str, float]) -> dict[str, Any]:
    fastest = min(spent, key=lambda rank: (spent[rank], rank))
    slowest = min(spent, key=lambda rank: (-spent[rank], rank))
    return {
        "name": name,
        "ranks": len(spent),
        "usual_ms": milliseconds(usual.get(name)),
        "min_ms": milliseconds(spent[fastest]),
        "min_rank": fastest,
        "median_ms": milliseconds(median_low(spent.values())),
        "max_ms": milliseconds(spent[slowest]),
        "max_rank": slowest,
    }


_SUMMED = object_of(
    name=TEXT, ranks=INTEGER, usual_ms=MS, min_ms=MS, min_rank=INTEGER, median_ms=MS, max_ms=MS, max_rank=INTEGER,
)  # fmt: skip
ALL_RANKS = object_of(
    count=INTEGER,
    next=nullable({"type": "integer", "description": "The `offset` of the next page; null after the last."}),
    spans=list_of(_SUMMED),
)
