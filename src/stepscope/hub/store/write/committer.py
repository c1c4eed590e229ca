"""Commits to one shard: batches become rows and a ledger entry, complete or, after a crash, not at all."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from stepscope.hub.store.columns import Block
from stepscope.hub.store.engine import EngineError, Tables
from stepscope.hub.store.schema import WHOLE, Shard, ShardUnavailable
from stepscope.hub.store.write import ledger as loaded
from stepscope.hub.store.write.catalog import Catalog, Source
from stepscope.hub.store.write.fold import RollupWriter
from stepscope.hub.store.write.group import UNFIT, Built, build, portions
from stepscope.hub.store.write.ledger import Entry, Ledger, Requests, writer_key
from stepscope.hub.store.write.recovery import Recovery
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch

if TYPE_CHECKING:  # a store in a folder has no leases
    from stepscope.hub.store.cluster.lease import Lease

Outcome = Reject | Retry | None
"""The outcome of a batch: None when all of it is stored."""

_SWEEP_SECONDS = (5.0, 60.0, 600.0)
"""When late rows of aborted commits are looked for, after a recovery."""


class Committer:
    """The one writer of a shard. Not thread-safe: callers take turns.

    The order is the promise: numbers of runs and series first (harmless when orphaned), then the rows, each with the
    commit's number, metrics before their totals, and the ledger last, in one atomic insert. A commit is complete when
    it is in the ledger and, on a shared store, the hub still has the shard. The rows of others were never acknowledged;
    `recover` deletes them before anything else is written.
    """

    def __init__(
        self,
        engine: Tables,
        clock: Callable[[], int],
        shard: Shard = WHOLE,
        lease: "Lease | None" = None,
        on_commit: Callable[[int], None] = lambda commit: None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._shard = shard
        self._lease = lease
        self._on_commit = on_commit
        self._epoch = 0
        """The epoch in which the caches were filled."""
        self._ledger = Ledger(engine, shard)
        self._catalog = Catalog(engine, clock, shard)
        self._recovery = Recovery(engine, self._ledger, shard, lease)
        self._requests = Requests(engine)
        self._rollups = RollupWriter(engine, self._ledger)
        self._last = 0
        self._broken = True
        """Whether rows of an incomplete commit may be in the tables."""
        self._sweeps: list[float] = []

    def check(self) -> None:
        """Raise EngineError, which passes, when another hub may write to the shard."""
        if self._lease is not None:
            self._lease.check()

    def _confirm(self, epoch: int) -> None:
        """Raise EngineError unless this hub has had the shard since an epoch, as the store says."""
        if self._lease is not None:
            self._lease.check(epoch)

    def _guard(self) -> None:
        if self._lease is not None:
            self._lease.guard(self._epoch)

    @property
    def ignored_aborts(self) -> int:
        """Commits that another hub aborted after it had lost the shard; they count, and nothing of them was deleted."""
        return len(self._recovery.ignored)

    def write(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches and return the outcome of each; those stored before are skipped."""
        outcomes: list[Outcome] = []
        before = self._last
        for group in portions(batches):
            try:
                outcomes += self._write(group)
            except Exception:  # raised again unless a part is stored already
                if self._last == before:
                    raise
                # What came before is safe, and its outcome must be reported; the rest fails when it is offered again.
                return outcomes + [Retry("the rest of the group is not stored yet", after=0.0)] * (
                    len(batches) - len(outcomes)
                )
        return outcomes

    def _write(self, batches: Sequence[Batch]) -> list[Outcome]:
        try:
            self.check()
            self.recover_if_needed()
            outcomes = self._commit(batches)
        except EngineError as error:
            self._broken = True
            if not error.passing:
                raise
            return [self._not_now(error)] * len(batches)
        except BaseException:
            self._broken = True
            raise
        with suppress(EngineError):  # the commit is complete; what was not folded is read as points, and folded later
            self._rollups.fold_due(self._last, guard=self._guard)
        return outcomes

    def fold_all(self) -> None:
        """Fold all that should be: after an upgrade, or a copy, nothing is."""
        self.check()
        self.recover_if_needed()
        self._rollups.find_due()
        while self._rollups.fold_due(self._last, guard=self._guard):
            self.check()

    def _not_now(self, error: EngineError) -> Retry:
        if self._shard.count == 1:
            return Retry(f"the store cannot accept more now: {error}", after=5.0)
        return ShardUnavailable(f"shard {self._shard.index + 1} cannot accept more now: {error}", self._shard.index)

    def _commit(self, batches: Sequence[Batch]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(batches)
        fresh = self._fresh(batches, outcomes)
        if fresh:
            self._commit_fresh(batches, fresh, outcomes)
            self._catalog.saved()
        if self._lease is None:  # on a shared store `sweep_if_due` does it
            self._requests.expire_if_due(self._clock(), self._guard)
        return outcomes

    def _commit_fresh(
        self, batches: Sequence[Batch], fresh: Sequence[tuple[int, Source]], outcomes: list[Outcome]
    ) -> None:
        number = self._last + 1
        built = build(self._catalog, [(source, batches[index].records) for index, source in fresh], number)
        entries = self._entries(batches, fresh, built)
        self._insert({**self._catalog.blocks(), **built.traces})
        self._insert(built.facts)
        requests = [(source.run_numbers.number, source.key, batches[index].request) for index, source in fresh]
        self._insert(self._requests.blocks(requests, number, self._clock()))
        self._insert({"ledger": loaded.block(entries, number, self._clock())})
        self._confirm(self._epoch)
        self._last = number
        self._on_commit(number)
        self._ledger.accept(entries)
        self._requests.accept(requests)
        self._rollups.note(built.facts.get("totals_in"))
        for part, refusal in built.refusals.items():
            outcomes[fresh[part][0]] = refusal

    def _fresh(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> list[tuple[int, Source]]:
        """Find the batches that are not stored yet, each with its source; invalid writers are rejected."""
        keys = [writer_key(batch.writer) for batch in batches]
        self._ledger.load(keys)
        self._requests.load(zip(keys, batches, strict=True), self._ledger.aborted, self._clock())
        met: set[tuple[int, str, int]] = set()
        fresh: list[int] = []
        for index, (key, batch) in enumerate(zip(keys, batches, strict=True)):
            names = {(key, "seq", batch.seq), (key, "request", batch.request or -index)}
            stored = self._ledger.seen(key, batch.seq) or self._requests.seen(key, batch.request)
            if not stored and not names & met:
                met |= names
                fresh.append(index)
        self._catalog.load(batches[index].writer.run for index in fresh)
        found: list[tuple[int, Source]] = []
        for index in fresh:
            batch = batches[index]
            if not self._catalog.has_room(batch.writer.run):
                outcomes[index] = Retry("too many new runs in one commit", after=0.0)
                continue
            try:
                found.append((index, self._catalog.source(batch.writer)))
            except UNFIT as error:
                outcomes[index] = Reject(f"invalid writer: {error}", range(len(batch.records)))
        return found

    def _entries(self, batches: Sequence[Batch], fresh: Sequence[tuple[int, Source]], built: Built) -> dict[int, Entry]:
        entries: dict[int, Entry] = {}
        for (index, source), gain in zip(fresh, built.gains, strict=True):
            entry = entries.get(source.key)
            if entry is None:
                entry = entries[source.key] = self._ledger.entry(source.key, source.run_numbers.number)
            progress = entry.progress
            progress.batches.add(batches[index].seq)
            progress.seen = max(progress.seen, gain.seen)
            progress.began = min(filter(None, (progress.began, gain.began)), default=0)
            progress.step = max(progress.step, gain.step)
            for name, count in gain.counts.items():
                progress.counts[name] += count
            entry.added.append(batches[index].seq)
        return entries

    def _insert(self, blocks: dict[str, Block]) -> None:
        for table, block in blocks.items():
            self._guard()
            self._engine.insert(table, block)

    def must_recover(self) -> bool:
        """Return whether rows of incomplete commits may be in the tables of a shard that this hub writes to."""
        return self._broken or self._current_epoch() != self._epoch

    def _current_epoch(self) -> int:
        return self._lease.epoch if self._lease is not None else 0

    def recover_if_needed(self) -> None:
        """Delete the rows of incomplete commits, after a failure or when this hub has just got the shard."""
        if not self.must_recover():
            return
        self.check()
        epoch = self._current_epoch()
        confirm = partial(self._confirm, epoch)
        self._broken = True
        self._last = self._recovery.recover(self._clock, confirm, epoch)
        self._ledger.forget()
        self._requests.forget()
        if epoch != self._epoch:
            self._catalog.begin_epoch(epoch)
            confirm()  # numbers that were just read are used in this epoch alone
        if epoch:
            self._sweeps = [time.monotonic() + seconds for seconds in _SWEEP_SECONDS]
        self._broken, self._epoch = False, epoch

    def sweep_if_due(self) -> None:
        """Delete what arrived late of commits that were aborted, and requests that are no longer repeated."""
        if self._sweeps and time.monotonic() >= self._sweeps[0]:
            self._recovery.sweep(partial(self._confirm, self._epoch))
            self._sweeps.pop(0)
        self._requests.expire_if_due(self._clock(), self._guard)

    def forget(self) -> None:
        """Look up runs and writers again, after some were deleted."""
        self._catalog.forget()
        self._ledger.forget()
        self._requests.forget()
        self._rollups.forget()
