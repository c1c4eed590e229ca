"""Commits to one shard: batches become rows, without invalid records, and a ledger entry; complete or not at all."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from stepscope.hub.store.columns import Block
from stepscope.hub.store.engine import EngineError, Tables
from stepscope.hub.store.schema import NO_STEP, ShardUnavailable
from stepscope.hub.store.write import ledger as loaded
from stepscope.hub.store.write.catalog import Catalog, Source
from stepscope.hub.store.write.fold import RollupWriter
from stepscope.hub.store.write.histogram_rows import Distributions, Exemplars
from stepscope.hub.store.write.ledger import COUNTS, WHOLE, Entry, Ledger, Requests, Shard, writer_key
from stepscope.hub.store.write.metric_rows import MetricRows, Points, as_rows
from stepscope.hub.store.write.recovery import Recovery
from stepscope.hub.store.write.span_log_rows import Lines, Spans, Traces
from stepscope.model.errors import Reject, Retry
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Batch
from stepscope.model.records import (
    MAX_EARLY,
    Alert,
    Event,
    Log,
    Metric,
    Record,
    Span,
    began_at,
    has_steps_in_range,
    recorded_at,
)

if TYPE_CHECKING:  # a store in a folder has no leases
    from stepscope.hub.store.cluster.lease import Lease

UNFIT = (TypeError, ValueError, OverflowError, RecursionError, AttributeError)
"""What making a column raises for an invalid value."""
_NUMBERS = {int, float, bool}
_METRICS: set[type] = {Metric}
_STEPPED: set[type] = {Metric, Span}
_COUNTED: dict[type, str] = {Log: "logs", Event: "events", Alert: "alerts"}


@dataclass(slots=True)
class Gain:
    """What a batch added."""

    seen: int = 0
    began: int = 0
    """The time of its first record; 0 when none has a time."""
    step: int = NO_STEP
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


class Group:
    """The rows of one commit. With `careful`, metrics are checked for values that are not numbers."""

    def __init__(self, catalog: Catalog, *, careful: bool = False) -> None:
        self._careful = careful
        self._catalog = catalog
        self._points: Points | None = None
        self._distributions: Distributions | None = None
        self._exemplars: Exemplars | None = None
        self._spans = Spans()
        self._lines = Lines()
        self._traces = Traces()

    def add(self, source: Source, records: Sequence[Record]) -> Gain:
        """Add the records of a batch; OverflowError for a step that cannot be stored."""
        if not self._careful and (rows := as_rows(records)) is not None:
            return self._add_rows(source, rows)
        if not has_steps_in_range(records):
            raise OverflowError("a step is out of range")
        kinds = set(map(type, records))
        only = kinds <= _METRICS
        gain = Gain(began=_began(records, kinds, source.writer.wall_ns))
        metrics = cast(list[Metric], list(records) if only else [each for each in records if type(each) is Metric])
        if metrics:
            self._add_metrics(source, metrics, gain)
        if len(metrics) < len(records):
            self._add_others(source, records, gain, len(records) - len(metrics))
        return gain

    def _add_rows(self, source: Source, rows: MetricRows) -> Gain:
        points = self._points = Points(self._catalog) if self._points is None else self._points
        points.extend_rows(source, rows)
        timed = rows.times[rows.times > 0]
        gain = Gain(int(rows.times.max()), int(timed.min()) if len(timed) else 0)
        gain.step = NO_STEP if rows.steps is None else int(rows.steps.max())
        gain.counts["points"] = len(rows.values)
        return gain

    def _add_metrics(self, source: Source, metrics: list[Metric], gain: Gain) -> None:
        points = self._points = Points(self._catalog) if self._points is None else self._points
        since, before = points.records(), self._count()
        plain = not [True for metric in metrics if metric.attrs or metric.instrument is not None]
        if self._careful or not plain:
            gain.seen = max([metric.time for metric in metrics])
            if not _are_numbers(metrics):
                metrics = [part for metric in metrics if (part := self._numbers(source, metric)) is not None]
        points.extend(source, metrics, plain=plain)
        seen, gain.step = points.reach(since)
        gain.seen = max(gain.seen, seen)
        gain.counts["points"] = self._count() - before

    def _count(self) -> int:
        """How many points and distributions there are."""
        return sum(len(each) for each in (self._points, self._distributions) if each is not None)

    def _numbers(self, source: Source, metric: Metric) -> Metric | None:
        """Remove the distributions and exemplars of a record and return the rest, if any."""
        if ATTR_EXEMPLARS in metric.attrs:
            self._exemplars = Exemplars(self._catalog) if self._exemplars is None else self._exemplars
            self._exemplars.add(source, metric)
        plain = {key: value for key, value in metric.values.items() if isinstance(value, (int, float))}
        if len(plain) == len(metric.values):
            return metric
        self._distributions = Distributions(self._catalog) if self._distributions is None else self._distributions
        self._distributions.add(source, metric)
        return replace(metric, values=plain) if plain else None

    def _add_others(self, source: Source, records: Sequence[Record], gain: Gain, count: int) -> None:
        spans = [record for record in records if type(record) is Span]
        lines = [record for record in records if type(record) is Log or type(record) is Event or type(record) is Alert]
        if len(spans) + len(lines) < count:
            raise TypeError("an item is not a record")
        self._spans.extend(source, spans)
        gain.counts["spans"] = len(spans)
        if lines:
            self._lines.extend(source, lines)
            for line in lines:
                gain.counts[_COUNTED[type(line)]] += 1
        others = [*spans, *lines]
        self._traces.extend(source.run_numbers.number, others)
        gain.seen = max(
            [gain.seen, *[recorded_at(line) for line in lines], *[span.time + (span.duration or 0) for span in spans]]
        )
        gain.step = max([gain.step, *[record.step for record in others if record.step is not None]])

    def facts(self, commit: int) -> dict[str, Block]:
        """Make the rows, metrics before their totals; one of `UNFIT` when a record is invalid."""
        parts = (self._points, self._distributions, self._exemplars, self._spans, self._lines)
        made = [part.blocks(commit) for part in parts if part is not None]
        return {table: block for each in made for table, block in each.items()}

    def traces(self) -> dict[str, Block]:
        """Make the rows that locate traces."""
        return self._traces.blocks()


def _began(records: Sequence[Record], kinds: set[type], started: int) -> int:
    """The time at which the first record began; 0 when none has a time."""
    times = [record.time for record in records]
    if not (kinds <= _METRICS or (kinds <= _STEPPED and min(times) >= started - MAX_EARLY)):
        times = [began_at(record, started) for record in records]
    return min([time for time in times if time > 0], default=0)


def _are_numbers(metrics: Sequence[Metric]) -> bool:
    """Return whether metrics hold neither distributions nor exemplars; a fast check."""
    types = set(map(type, chain.from_iterable([metric.values.values() for metric in metrics])))
    return types <= _NUMBERS and not [True for metric in metrics if ATTR_EXEMPLARS in metric.attrs]


Part = tuple[Source, Sequence[Record]]


@dataclass(slots=True)
class Built:
    """The rows of a commit, what each batch added, and which of its records were rejected."""

    facts: dict[str, Block]
    traces: dict[str, Block]
    gains: list[Gain]
    refusals: dict[int, Reject]


def build(catalog: Catalog, parts: Sequence[Part], commit: int) -> Built:
    """Turn batches into rows, without the invalid records."""
    try:
        return _build(catalog, parts, commit, {})
    except UNFIT:
        pass
    refusals: dict[int, Reject] = {}
    good: list[Part] = []
    for index, (source, records) in enumerate(parts):
        bad = _unfit(catalog, source, records)
        if bad:
            reasons = sorted(set(bad.values()))
            refusals[index] = Reject("; ".join(reasons[:3]), tuple(bad))
        good.append((source, [record for at, record in enumerate(records) if at not in bad]))
    built = _build(catalog, good, commit, refusals, careful=True)
    for index, refusal in refusals.items():
        built.gains[index].counts["rejected"] = len(refusal.where)
    return built


def _build(
    catalog: Catalog, parts: Sequence[Part], commit: int, refusals: dict[int, Reject], *, careful: bool = False
) -> Built:
    group = Group(catalog, careful=careful)
    gains = [group.add(source, records) for source, records in parts]
    return Built(group.facts(commit), group.traces(), gains, refusals)


def _unfit(catalog: Catalog, source: Source, records: Sequence[Record]) -> dict[int, str]:
    """Find the invalid records, and why they are."""
    if _reason(catalog, source, records) is None:
        return {}
    reasons = ((index, _reason(catalog, source, [record])) for index, record in enumerate(records))
    return {index: reason for index, reason in reasons if reason is not None}


def _reason(catalog: Catalog, source: Source, records: Sequence[Record]) -> str | None:
    group = Group(catalog, careful=True)
    try:
        group.add(source, records)
        group.facts(0)
        group.traces()
    except UNFIT as error:
        return str(error) or type(error).__name__
    return None


MAX_ROWS = 1_000_000
"""The most rows of one commit; a larger group is split."""


def portions(batches: Sequence[Batch]) -> Iterable[Sequence[Batch]]:
    """Split a group that is too large for one commit."""
    start = rows = 0
    for index, batch in enumerate(batches):
        size = _rows(batch)
        if rows and rows + size > MAX_ROWS:
            yield batches[start:index]
            start, rows = index, 0
        rows += size
    if start < len(batches):
        yield batches[start:]


def _rows(batch: Batch) -> int:
    """Estimate the rows of a batch by its first record; counting all of them costs as much as storing some."""
    if (rows := as_rows(batch.records)) is not None:
        return len(rows.values)
    first = next(iter(batch.records), None)
    return len(batch.records) * (len(first.values) if isinstance(first, Metric) else 1)


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
