"""The ledger: which batches of which writer are in, and how much came with them."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from stepscope.hub.store import literal
from stepscope.hub.store.columns import Block, numbers
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.ports import Writer

MOST_KNOWN = 100_000
"""Writers held in memory; beyond it all are looked up again."""
COUNTS = ("points", "spans", "logs", "events", "alerts", "rejected")


def writer_key(writer: Writer) -> int:
    """Number a writer by a hash of its run and its id."""
    digest = hashlib.md5(f"{writer.run}/{writer.id}".encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


class Ranges:
    """A set of whole numbers kept as ranges, made for numbers that come in order."""

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
        """An independent set of the same numbers."""
        other = Ranges()
        other._firsts, other._lasts = self._firsts[:], self._lasts[:]
        return other

    def add(self, number: int) -> None:
        """Put a number in that is not in yet."""
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
        """The range that holds a number."""
        at = bisect_right(self._firsts, number) - 1
        return self._firsts[at], self._lasts[at]


@dataclass(slots=True)
class WriterProgress:
    """Which batches of one writer are stored, its counts and its last record."""

    run: int
    batches: Ranges = field(default_factory=Ranges)
    seen: int = 0
    step: int = NO_STEP
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    began: int = 0
    """The time of its first record; 0 when it is not known."""


@dataclass(slots=True)
class Entry:
    """A writer's next progress and the batches that led to it; becomes true when it is inserted."""

    progress: WriterProgress
    added: list[int] = field(default_factory=list)


class Ledger:
    """The progress of the writers met since the store was opened; the others are looked up when they come."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[int, WriterProgress] = {}

    def last_commit(self) -> int:
        """The number of the newest complete commit; 0 when there is none."""
        return int(self._engine.query("SELECT max(commit) AS last FROM ledger").one("last"))

    def load(self, writers: Iterable[int]) -> None:
        """Look up the progress of these writers."""
        missing = [writer for writer in set(writers) if writer not in self._known]
        if not missing:
            return
        counts = ", ".join(f"argMax({name}, commit) AS {name}" for name in COUNTS)
        found = self._engine.query(
            f"""SELECT writer, groupArray(first) AS firsts, groupArray(last) AS lasts,
                argMax(run, commit) AS run, max(seen) AS seen, max(step) AS step,
                argMax(began, commit) AS began, {counts}
            FROM ledger WHERE writer IN {literal.integers(missing)} GROUP BY writer"""
        )
        self._known.update((writer, WriterProgress(run=-1)) for writer in missing)
        for row in found.rows("writer", "firsts", "lasts", "run", "seen", "step", "began", *COUNTS):
            writer, firsts, lasts, run, seen, step, began, *amounts = row
            batches = Ranges(zip(firsts, lasts, strict=True))
            counted = dict(zip(COUNTS, amounts, strict=True))
            self._known[writer] = WriterProgress(run, batches, seen, step, counted, began)

    def seen(self, writer: int, seq: int) -> bool:
        """Tell whether a batch is in; its writer must have been loaded."""
        return seq in self._known[writer].batches

    def entry(self, writer: int, run: int) -> Entry:
        """Begin the next progress of a writer. One that comes back after its run was dropped starts at zero."""
        known = self._known[writer]
        if known.run != run:
            return Entry(WriterProgress(run, known.batches.copy()))
        return Entry(replace(known, batches=known.batches.copy(), counts=dict(known.counts)))

    def accept(self, entries: dict[int, Entry]) -> None:
        """Take over progress that are stored now."""
        if len(self._known) > MOST_KNOWN:
            self.forget()
        self._known.update((writer, entry.progress) for writer, entry in entries.items())

    def forget(self) -> None:
        """Look everything up again when it is needed."""
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
