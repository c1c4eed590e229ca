"""The way of a request's records through the hub, without its files: scrub, pack, unpack, rows for the store."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import SequenceNumbers, unpack
from stepscope.hub.intake.scrub import Scrubber
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import Ingest, RunOwners
from stepscope.hub.store import columns
from stepscope.hub.store.columns import Answer, Block
from stepscope.hub.store.engine import Engine, RowStream
from stepscope.hub.store.engine import Limits as Bounds
from stepscope.hub.store.write.catalog import Catalog
from stepscope.hub.store.write.committer import UNFIT, build
from stepscope.model.ports import Batch
from stepscope.wire import frames


class Tray:
    """Replaces the intake and keeps batches in memory: a sync for each input would dominate the cost."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def submit(self, batches: Sequence[bytes]) -> "Future[None]":
        """Take packed batches."""
        self.batches += batches
        future: Future[None] = Future()
        future.set_result(None)
        return future


class Nothing:
    """An engine without a row, in which the catalog looks up runs."""

    version, modern, shards = "0", True, 1

    def query(self, sql: str) -> Answer:
        """Answer every question with no rows, and that for the highest number with 0."""
        return Answer({"newest": [0]} if "AS newest" in sql else {})

    def query_many(self, questions: Sequence[str]) -> list[Answer]:
        """Answer one by one."""
        return [self.query(sql) for sql in questions]

    def execute(self, sql: str) -> None:
        """Do nothing."""

    def insert(self, table: str, block: Block) -> None:
        """Write the rows in the engine's format, to see that they can be."""
        columns.encode(block)

    def ask(self, sql: str, limits: Bounds) -> AbstractContextManager[RowStream]:
        """Answer no user-supplied query."""
        raise NotImplementedError

    def tree(self, sql: str) -> str | None:
        """Know no tree."""

    def settle(self, tables: Sequence[str]) -> None:
        """Have no replicas."""

    def check(self, table: str) -> list[str]:
        """Find no damage."""
        return []

    def close(self) -> None:
        """Have nothing to close."""


class HubPath:
    """One hub's way in, fresh for each input, so that an input means the same every time."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._tray = Tray()
        numbers = SequenceNumbers(lambda: 1)
        self.entry = Ingest("fuzz", self._tray, Scrubber(Limits()), self.counters, numbers, RunOwners())  # type: ignore[arg-type]

    def finish(self) -> int:
        """Carry what was taken to the rows of a commit; return how many records there were.

        Everything counted as written must be in the batches, and everything in the batches must become rows or be
        refused by name.
        """
        if not self._tray.batches:
            assert self.counters.total("written") == 0
            return 0
        packed = frames.pack_batch(1, self._tray.batches)
        (found,) = frames.scan(packed, final=True)
        assert isinstance(found, frames.Frame)
        _, batches, bad = unpack(found.payload)
        assert bad == 0, "a batch that was packed cannot be read"
        taken = sum(len(each.records) for each in batches)
        assert taken == self.counters.total("written"), "records were lost between the request and the journal"
        _store([each.batch() for each in batches])
        return taken


def _store(batches: Sequence[Batch]) -> None:
    """Make the rows of a commit as the store does."""
    engine: Engine = Nothing()
    catalog = Catalog(engine, lambda: 10**18)
    catalog.load(batch.writer.run for batch in batches)
    parts = []
    for batch in batches:
        try:
            parts.append((catalog.source(batch.writer), batch.records))
        except UNFIT:
            continue  # the commit refuses such a writer by name
    built = build(catalog, parts, 1)
    refused = sum(len(refusal.where) for refusal in built.refusals.values())
    kept = sum(sum(gain.counts.values()) for gain in built.gains)
    assert kept >= refused
    for table, block in {**catalog.blocks(), **built.traces, **built.facts}.items():
        engine.insert(table, block)
