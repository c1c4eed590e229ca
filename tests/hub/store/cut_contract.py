"""The contract of a store across failures: whichever insert of a commit is cut, all is in, and in once."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from stepscope.hub.store import maintenance
from stepscope.hub.store.columns import Block
from stepscope.hub.store.engine import EngineError
from stepscope.hub.store.store import Store
from stepscope.model import names
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Alert, Event, Histogram, Instrument, Log, Metric, Record, Span
from tests.hub.store.contract import T, bits, floats, line, losses, writer

INSERTS = 11
"""Inserts of a commit with every kind of record, from the writers to the ledger."""


PATIENCE = 300.0


class Cut:
    """An engine that fails at one insert: before it reaches the real one, or after, as when an answer is lost."""

    def __init__(self, engine: Any, at: int, *, after: bool) -> None:
        self._engine = engine
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def shard(self, index: int) -> "Cut":
        """The tables of a shard, cut at the same place."""
        return Cut(self._engine.shard(index), self._left, after=self._after)

    def insert(self, table: str, block: Block) -> None:
        """Insert, or fail."""
        self._left -= 1
        if self._left != 0 or self._after:
            self._engine.insert(table, block)
        if self._left == 0:
            raise EngineError("No space left on device", 243)


class CutContract:
    """What a store promises across failures; needs `reopen`, which closes the store given and opens its place again."""

    def test_everything_is_there_after_a_restart(self, reopen: Callable[[Store | None], Store]) -> None:
        """Values, counts, and which batches are in."""
        store = reopen(None)
        store.write(Batch(writer("r"), 0, losses([(1, math.nan), (2, 0.5)])))
        store = reopen(store)
        assert store.write_many([Batch(writer("r"), seq, losses([(seq + 2, 1.0)])) for seq in (0, 1)]) == [None, None]
        assert bits(floats(line(store, "r"))) == bits([math.nan, 0.5, 1.0])
        assert maintenance.check(store.engine) == []

    def test_a_commit_that_fails_leaves_nothing(self, reopen: Callable[[Store | None], Store]) -> None:
        """Whichever insert fails, and whether it took effect or not: offered again, all is in, and in once."""
        store = reopen(None)
        store.write(_mixed(0))
        places = [(at, True) for at in range(1, INSERTS + 1)] + [(at, False) for at in (1, 5, INSERTS)]
        for seq, (at, after) in enumerate(places, 1):
            cut = Store(Cut(store.engine, at, after=after))  # type: ignore[arg-type]
            assert isinstance(cut.write_many([_mixed(seq)])[0], Retry)
            _offer(cut, _mixed(seq))
        assert not any(cut.write_many([_mixed(seq) for seq in range(len(places) + 1)]))
        _assert_once(cut, range(len(places) + 1))

    def test_a_failed_commit_is_taken_back_by_the_next_process(self, reopen: Callable[[Store | None], Store]) -> None:
        """What the ledger does not name is gone after a restart, in the totals as well."""
        store = reopen(None)
        store.write(_mixed(0))
        Store(Cut(store.engine, INSERTS - 1, after=True)).write_many([_mixed(1)])  # type: ignore[arg-type]
        assert maintenance.check(store.engine) != []
        store = reopen(store)
        _assert_once(store, range(1))
        _offer(store, _mixed(1))
        _assert_once(store, range(2))


def _offer(store: Store, batch: Batch) -> None:
    """Offer a batch until it is stored: a cluster may need longer to delete what was left than a commit waits."""
    deadline = time.monotonic() + PATIENCE
    while isinstance(outcome := store.write_many([batch])[0], Retry):
        assert time.monotonic() < deadline, outcome
    assert outcome is None


def _mixed(seq: int) -> Batch:
    """A batch with a row for every kind of table; its number is in all of them."""
    trace = (seq + 1).to_bytes(16, "big")
    records: list[Record] = [
        Metric(T + seq, seq, None, "trainer", {"loss": float(seq)}),
        Metric(T + seq, seq, None, None, {"lat": Histogram(1, 1.0, 1.0, 1.0, (1.0,), (1, 0))}, {}, Instrument()),
        Span(T + seq, 1, seq, None, trace, trace[8:], None, "step"),
        Span(T + seq, None, seq, None, trace, b"o" + trace[9:], None, "open"),
        Log(T + seq, seq, None, None, None, 9, str(seq)),
        Event(T + seq, seq, None, None, None, 9, names.EVENT_STARTED),
        Alert(T + seq, seq, None, None, None, 9, "a"),
    ]
    return Batch(writer("mixed"), seq, records)


def _assert_once(store: Store, seqs: Sequence[int]) -> None:
    """Every batch is in every table exactly once, and the totals add up."""
    expected = sorted(seqs)
    for table in ("metrics", "histograms", "spans", "open_spans", "alerts"):
        assert sorted(store.engine.query(f"SELECT step FROM {table}")["step"]) == expected, table
    assert sorted(store.engine.query("SELECT step FROM logs WHERE kind = 2")["step"]) == expected
    assert len(store.engine.query("SELECT time FROM lifecycle")) == len(expected)
    assert maintenance.check(store.engine) == []
