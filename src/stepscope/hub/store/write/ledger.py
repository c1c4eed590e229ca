"""The ledger of a shard: which batches of each writer are stored, and which requests that number no batches."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from stepscope.hub.store import literal
from stepscope.hub.store.columns import Block, numbers
from stepscope.hub.store.engine import Engine, Tables
from stepscope.hub.store.schema import BY_SERIES, NO_STEP, create
from stepscope.model.ports import Batch, Writer

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


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the shards of a store; the numbers of its runs modulo `count` are `index`."""

    index: int = 0
    count: int = 1

    def condition(self, table: str) -> str:
        """The SQL condition for the rows of this shard in a table."""
        if self.count == 1:
            return "1"
        number = "bitShiftRight(series, 32)" if table in BY_SERIES else "run"
        return f"{number} % {self.count} = {self.index}"

    def number_from(self, least: int) -> int:
        """The lowest number of a run on this shard that is not below another number."""
        return least + (self.index - least) % self.count


WHOLE = Shard()
"""The one shard of a store that is not divided."""


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


REQUESTS = "requests"
CACHED_NS = 900 * 1_000_000_000
"""Requests of so long are in memory, twice as many at most: nearly every client gives up after minutes."""
KEPT_NS = 24 * 3600 * 1_000_000_000
"""How long a request is remembered, for clients that repeat one until the network is back."""
_REQUEST_COLUMNS = """(run UInt32, writer UInt64, request UInt64, commit UInt32, received Int64)
    ENGINE = MergeTree ORDER BY (writer, received){settings}"""
_MAX_REQUESTS = 500_000
"""When more than this are cached, the cache is cleared."""
Stored = tuple[int, int, int]
"""The numbers of a run, a writer and a request, which is 0 when it is not known."""


class Requests:
    """The requests of a shard that were stored lately, each with the writer of its records.

    The last ones are in memory. A batch of older records may be repeated after a long outage: it is looked up.
    Their rows are written before the ledger entry of their commit, and do not count when that commit was aborted.
    """

    def __init__(self, engine: Tables) -> None:
        self._engine = engine
        self._known: dict[int, set[int]] = {}
        self._size = 0
        self._expire_at = 0

    def load(self, batches: Iterable[tuple[int, Batch]], aborted: Sequence[int], now: int) -> None:
        """Look up the requests of writers, given with their batches."""
        numbered = [(writer, batch) for writer, batch in batches if batch.request]
        valid = f"commit NOT IN {literal.integers(aborted)}" if aborted else "1"
        if missing := {writer for writer, _ in numbered if writer not in self._known}:
            self._read(f"writer IN {literal.integers(missing)} AND received > {now - CACHED_NS} AND {valid}", missing)
        late = [each for each in numbered if any(record.time < now - CACHED_NS for record in each[1].records[:1])]
        if unknown := {(writer, batch.request) for writer, batch in late if not self.seen(writer, batch.request)}:
            writers, requests = map(set, zip(*unknown, strict=True))
            some = f"writer IN {literal.integers(writers)} AND request IN {literal.integers(requests)}"
            self._read(f"{some} AND {valid}", ())

    def _read(self, condition: str, writers: Iterable[int]) -> None:
        found = self._engine.query_all(f"SELECT writer, request FROM {REQUESTS} WHERE {condition}")
        self._known.update((writer, set()) for writer in writers)
        for answer in found:
            for writer, request in answer.rows("writer", "request"):
                self._known[writer].add(request)
                self._size += 1

    def seen(self, writer: int, request: int) -> bool:
        """Return whether the records of a request are stored; its writer must have been loaded."""
        return request in self._known.get(writer, ())

    def blocks(self, stored: Sequence[Stored], commit: int, received: int) -> dict[str, Block]:
        """Make the rows of a commit."""
        rows = [each for each in stored if each[2]]
        return {REQUESTS: _request_block(rows, commit, received)} if rows else {}

    def accept(self, stored: Iterable[Stored]) -> None:
        """Remember requests that are now stored."""
        if self._size > _MAX_REQUESTS:
            self.forget()
        for _, writer, request in stored:
            if request and writer in self._known:
                self._known[writer].add(request)
                self._size += 1

    def expire_if_due(self, now: int, guard: Callable[[], None]) -> None:
        """Forget requests that no client repeats any more, once in the time for which they are in memory."""
        if now < self._expire_at:
            return
        old = f"received < {now - KEPT_NS}"
        if self._engine.query(f"SELECT count() AS found FROM {REQUESTS} WHERE {old}").one("found"):
            guard()
            self._engine.execute(f"ALTER TABLE {REQUESTS} DELETE WHERE {old}")
        self.forget()
        self._expire_at = now + CACHED_NS

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()
        self._size = 0


def prepare_requests(engine: Engine) -> None:
    """Create the table of requests if it is missing."""
    create(engine, REQUESTS, _REQUEST_COLUMNS)


def _request_block(rows: Sequence[Stored], commit: int, received: int) -> Block:
    return {
        "run": numbers("UInt32", [row[0] for row in rows]),
        "writer": numbers("UInt64", [row[1] for row in rows]),
        "request": numbers("UInt64", [row[2] for row in rows]),
        "commit": numbers("UInt32", [commit] * len(rows)),
        "received": numbers("Int64", [received] * len(rows)),
    }
