"""The ledger: which batches of each writer are stored, and how many records came with them."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from stepscope.hub.store import literal
from stepscope.hub.store.columns import Block, numbers
from stepscope.hub.store.engine import Tables
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.shards import WHOLE, Shard
from stepscope.model.ports import Writer

MAX_KNOWN = 100_000
"""When more writers than this are cached, the cache is cleared."""
COUNTS = ("points", "spans", "logs", "events", "alerts", "rejected")


def writer_key(writer: Writer) -> int:
    """Compute the number of a writer: a hash of its run and its id."""
    digest = hashlib.md5(f"{writer.run}/{writer.id}".encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


class Ranges:
    """A set of integers stored as ranges, efficient for numbers that arrive in order."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def copy(self) -> "Ranges":
        """Return an independent copy."""
        other = Ranges()
        other._firsts, other._lasts = self._firsts[:], self._lasts[:]
        return other

    def add(self, number: int) -> None:
        """Add a number that is not in the set."""
        at = bisect_right(self._firsts, number)
        joins_left = at > 0 and self._lasts[at - 1] == number - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == number + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts.pop(at)
            del self._firsts[at]
        elif joins_left:
            self._lasts[at - 1] = number
        elif joins_right:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)

    def around(self, number: int) -> tuple[int, int]:
        """The range that contains a number."""
        at = bisect_right(self._firsts, number) - 1
        return self._firsts[at], self._lasts[at]


@dataclass(slots=True)
class WriterProgress:
    """The stored batches of one writer, its counts and its last record."""

    run: int
    batches: Ranges = field(default_factory=Ranges)
    seen: int = 0
    step: int = NO_STEP
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    began: int = 0
    """The time of its first record; 0 when it is not known."""


@dataclass(slots=True)
class Entry:
    """The next progress of a writer and the batches that led to it; valid once it is inserted."""

    progress: WriterProgress
    added: list[int] = field(default_factory=list)


class Ledger:
    """The progress of a shard's writers seen since the store was opened; others are looked up when needed."""

    def __init__(self, engine: Tables, shard: Shard = WHOLE) -> None:
        self._engine = engine
        self._shard = shard
        self._known: dict[int, WriterProgress] = {}
        self.aborted: list[int] = []
        """Numbers of commits whose entries do not count, should any be there."""

    def leave_out(self, aborted: list[int]) -> None:
        """Count the entries of these commits no more."""
        self.aborted = aborted

    def last_commit(self) -> int:
        """The number of the newest commit in the ledger; 0 when there is none."""
        where = self._shard.condition("ledger")
        found = self._engine.query_all(f"SELECT max(commit) AS last FROM ledger WHERE {where}")
        return max(int(answer.one("last")) for answer in found)

    def load(self, writers: Iterable[int]) -> None:
        """Look up the progress of these writers."""
        missing = [writer for writer in set(writers) if writer not in self._known]
        if not missing:
            return
        counts = ", ".join(f"argMax({name}, commit) AS {name}" for name in COUNTS)
        valid = f"commit NOT IN {literal.integers(self.aborted)}" if self.aborted else "1"
        found = self._engine.query_all(
            f"""SELECT max(commit) AS newest, writer, groupArray(first) AS firsts, groupArray(last) AS lasts,
                argMax(run, commit) AS run, max(seen) AS seen, max(step) AS step,
                argMax(began, commit) AS began, {counts}
            FROM ledger WHERE writer IN {literal.integers(missing)} AND {valid} GROUP BY writer"""
        )
        self._known.update((writer, WriterProgress(run=-1)) for writer in missing)
        names = ("newest", "writer", "firsts", "lasts", "run", "seen", "step", "began", *COUNTS)
        for row in sorted(row for answer in found for row in answer.rows(*names)):  # the newest of replicas comes last
            _, writer, firsts, lasts, run, seen, step, began, *amounts = row
            batches = Ranges((*self._known[writer].batches, *zip(firsts, lasts, strict=True)))
            counted = dict(zip(COUNTS, amounts, strict=True))
            self._known[writer] = WriterProgress(run, batches, seen, step, counted, began)

    def seen(self, writer: int, seq: int) -> bool:
        """Return whether a batch is stored; its writer must have been loaded."""
        return seq in self._known[writer].batches

    def entry(self, writer: int, run: int) -> Entry:
        """Begin the next progress of a writer; after its run was deleted it starts at zero."""
        known = self._known[writer]
        if known.run != run:
            return Entry(WriterProgress(run, known.batches.copy()))
        return Entry(replace(known, batches=known.batches.copy(), counts=dict(known.counts)))

    def accept(self, entries: dict[int, Entry]) -> None:
        """Accept progress that is now stored."""
        if len(self._known) > MAX_KNOWN:
            self.forget()
        self._known.update((writer, entry.progress) for writer, entry in entries.items())

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()


def block(entries: dict[int, Entry], commit: int, received: int) -> Block:
    """Make the rows that complete a commit."""
    rows = [
        (writer, *bounds, entry.progress)
        for writer, entry in entries.items()
        for bounds in sorted({entry.progress.batches.around(seq) for seq in entry.added})
    ]
    made = [row[3] for row in rows]
    result: Block = {
        "writer": numbers("UInt64", [row[0] for row in rows]),
        "first": numbers("UInt64", [row[1] for row in rows]),
        "last": numbers("UInt64", [row[2] for row in rows]),
        "commit": numbers("UInt32", [commit] * len(rows)),
        "run": numbers("UInt32", [each.run for each in made]),
        "seen": numbers("Int64", [each.seen for each in made]),
        "received": numbers("Int64", [received] * len(rows)),
        "step": numbers("Int64", [each.step for each in made]),
        "began": numbers("Int64", [each.began for each in made]),
    }
    for name in COUNTS:
        result[name] = numbers("UInt64", [each.counts[name] for each in made])
    return result
