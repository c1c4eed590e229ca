"""Assigns numbers to runs and series: assigned once, written before the rows that use them, looked up on first use."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.columns import Block, Ints, Lists, ends_of, numbers, texts
from stepscope.hub.store.engine import Tables
from stepscope.hub.store.schema import ERA
from stepscope.hub.store.write.ledger import WHOLE, Shard, writer_key
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Writer, run_id_problem
from stepscope.model.records import Attrs, Instrument

WEEK_NS = 7 * 24 * 3600 * 10**9
MAX_SLOTS = 2_000_000
MAX_SOURCES = 50_000
"""When more writers than this are cached, the cache is cleared."""
MAX_NEW_RUNS = 1024
"""New runs of one commit on a shared store."""
_EPOCHS = 64
"""So many epochs in a row give different numbers to new series."""

Labels: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], str]
"""Attributes sorted by name, encoded: names, values, types."""
Identity: TypeAlias = tuple[str, str, int, Labels, tuple[str, str, int, int, str]]
"""What identifies a series: key, axis, rank, attributes, and the instrument's type, unit, temporality and scope."""

NO_LABELS: Labels = ((), (), "")
_CACHED = frozenset((str, int, bool, type(None)))
"""Types of attributes whose labels are remembered; -0.0 equals 0.0, and lists have no hash."""
_NO_INSTRUMENT = Instrument(type="", cumulative=False)


@dataclass(slots=True)
class RunNumbers:
    """The number of a run and the numbers of its series."""

    number: int
    series: dict[Identity, int] = field(default_factory=dict)
    following: int = 0
    """The index of the next new series."""


@dataclass(slots=True)
class Source:
    """A writer with its numbers; `shapes` caches the series of records with the same keys."""

    writer: Writer
    key: int
    run_numbers: RunNumbers
    shapes: dict[tuple[object, ...], int] = field(default_factory=dict)


class Catalog:
    """Not thread-safe: the committing thread uses it."""

    def __init__(self, engine: Tables, clock: Callable[[], int], shard: Shard = WHOLE) -> None:
        self._engine = engine
        self._clock = clock
        self._shard = shard
        self._least_run = 0
        self._stride, self._offset = 1, 0
        self._run_numbers: dict[str, RunNumbers] = {}
        self._sources: dict[int, Source] = {}
        self._slots: dict[tuple[int, int], int] = {}
        self.slot_series = array("Q")
        self.slot_attempts = array("H")
        self._shape_slots = array("q")
        self._shape_ends = array("q", [0])
        self._last_run = -1
        self._new_runs: list[tuple[int, Writer, int]] = []
        self._new_writers: list[Source] = []
        self._new_series: list[tuple[int, int, Identity, str]] = []

    def begin_epoch(self, epoch: int) -> None:
        """Look everything up again, and give no number that the hub before may have given without our knowledge.

        It may have numbered the runs and series of one commit whose rows arrive late.
        """
        self.forget()
        self._least_run = self._newest_run() + 1 + MAX_NEW_RUNS * self._shard.count
        self._stride, self._offset = _EPOCHS, epoch % _EPOCHS

    def has_room(self, run: str) -> bool:
        """Return whether a run can be part of this commit: one epoch gives a bounded number of runs in a commit."""
        return self._stride == 1 or run in self._run_numbers or len(self._new_runs) < MAX_NEW_RUNS

    def load(self, runs: Iterable[str]) -> None:
        """Look up the numbers of these runs and their series."""
        missing = [run for run in dict.fromkeys(runs) if run not in self._run_numbers]
        if not missing:
            return
        found = self._engine.query(
            f"SELECT id, max(run) AS run FROM runs WHERE id IN {literal.texts(missing)} GROUP BY id"
        )
        loaded = {run: RunNumbers(number) for run, number in found.rows("id", "run")}
        by_number = {run_numbers.number: run_numbers for run_numbers in loaded.values()}
        if by_number:
            self._load_series(by_number)
        self._run_numbers.update(loaded)

    def _load_series(self, loaded: dict[int, RunNumbers]) -> None:
        rows = self._engine.query(f"SELECT * FROM series WHERE run IN {literal.integers(loaded)}").rows(
            *("run", "series", "key", "axis", "rank", "attr_names", "attr_values", "attr_types"),
            *("type", "unit", "cumulative", "monotonic", "scope"),
        )
        for run, series, key, axis, rank, names, values, types, *instrument in rows:
            labels = (tuple(names), tuple(values), types)
            run_numbers = loaded[run]
            identity = (key, axis, rank, labels, tuple(instrument))
            run_numbers.series[identity] = max(series, run_numbers.series.get(identity, 0))
            run_numbers.following = max(run_numbers.following, (series & 0xFFFFFFFF) + 1)

    def source(self, writer: Writer) -> Source:
        """The source of a writer whose run was loaded; ValueError, TypeError or OverflowError for an invalid writer."""
        key = writer_key(writer)
        source = self._sources.get(key)
        if source is None:
            if problem := run_id_problem(writer.run):
                raise ValueError(problem)
            source = Source(writer, key, RunNumbers(0))
            _writers_block([source])
            source.run_numbers = self._numbers_of(writer)
            self._new_writers.append(source)
            self._sources[key] = source
        return source

    def _numbers_of(self, writer: Writer) -> RunNumbers:
        run_numbers = self._run_numbers.get(writer.run)
        if run_numbers is None:
            now = self._clock()
            least = max(self._newest_run() + 1, now // WEEK_NS * ERA, self._least_run)
            self._last_run = self._shard.number_from(least)
            run_numbers = self._run_numbers[writer.run] = RunNumbers(self._last_run)
            self._new_runs.append((run_numbers.number, writer, now))
        return run_numbers

    def _newest_run(self) -> int:
        """The highest run number of the shard ever assigned; the ledger remembers those of deleted runs."""
        if self._last_run < 0:
            which = f"WHERE {self._shard.condition('runs')}"
            parts = [f"SELECT max(run) AS newest FROM {table} {which}" for table in ("runs", "ledger")]
            self._last_run = max(self._engine.query(" UNION ALL ".join(parts))["newest"])
        return self._last_run

    def slot(self, source: Source, key: str, axis: str | None, labels: Labels, instrument: Instrument | None) -> int:
        """Return the index of a series in this process's memory, assigning one if it is new."""
        made = instrument or _NO_INSTRUMENT
        how = (made.type, made.unit, int(made.cumulative), int(made.monotonic), made.scope)
        identity: Identity = (key, axis or "", source.writer.rank, labels, how)
        series = source.run_numbers.series.get(identity)
        if series is None:
            low = -(-source.run_numbers.following // self._stride) * self._stride + self._offset
            series = (source.run_numbers.number << 32) + low
            row = (source.run_numbers.number, series, identity, made.description)
            _series_block([row])
            self._new_series.append(row)
            source.run_numbers.series[identity] = series
            source.run_numbers.following = low + 1
        at = (series, source.writer.attempt)
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = len(self.slot_series)
            self.slot_series.append(series)
            self.slot_attempts.append(source.writer.attempt)
        return slot

    def shape(self, slots: Sequence[int]) -> int:
        """Cache the series of records with the same keys under a number."""
        self._shape_slots.extend(slots)
        self._shape_ends.append(len(self._shape_slots))
        return len(self._shape_ends) - 2

    def slots_of(self, shapes: Ints) -> tuple[Ints, Ints]:
        """Return the number of values of each record, and the series of all values, by the records' shapes."""
        ends = np.array(self._shape_ends)
        sizes = (ends[1:] - ends[:-1])[shapes]
        shift = ends[shapes] - (np.cumsum(sizes) - sizes)
        return sizes, np.array(self._shape_slots)[np.arange(sizes.sum()) + shift.repeat(sizes)]

    def slots(
        self, source: Source, category: str | None, keys: Iterable[str], axis: str | None,
        labels: Labels = NO_LABELS, instrument: Instrument | None = None,
    ) -> list[int]:  # fmt: skip
        """Return the series of a record's values."""
        prefix = f"{category}/" if category is not None else ""
        return [self.slot(source, prefix + key, axis, labels, instrument) for key in keys]

    def blocks(self) -> dict[str, Block]:
        """Make the rows that are not in any table yet."""
        found: dict[str, Block] = {}
        if self._new_runs:
            found["runs"] = _runs_block(self._new_runs)
        if self._new_writers:
            found["writers"] = _writers_block(self._new_writers)
        if self._new_series:
            found["series"] = _series_block(self._new_series)
        return found

    def saved(self) -> None:
        """Mark the new rows as stored."""
        self._new_runs.clear()
        self._new_writers.clear()
        self._new_series.clear()
        if len(self._shape_slots) > MAX_SLOTS or len(self._sources) > MAX_SOURCES:
            self.forget()

    def forget(self) -> None:
        """Clear the cache; rows not stored yet get new numbers."""
        for memory in (self._run_numbers, self._sources, self._slots):
            memory.clear()
        del self.slot_series[:], self.slot_attempts[:], self._shape_slots[:], self._shape_ends[1:]
        for rows in (self._new_runs, self._new_writers, self._new_series):
            rows.clear()
        self._last_run = -1


def label(values: Attrs) -> Labels:
    """Encode attributes sorted by name; exemplars belong to a point, not to its series."""
    if not values:
        return NO_LABELS
    types = tuple(map(type, values.values()))
    if _CACHED.issuperset(types):
        return _known_label(tuple(values), tuple(values.values()), types)
    return _label(values)


@lru_cache(maxsize=20_000)
def _known_label(names: tuple[str, ...], values: tuple[Any, ...], types: tuple[type, ...]) -> Labels:
    """Encode attributes, from the cache if seen before; equal values of different types are different labels."""
    return _label(dict(zip(names, values, strict=True)))


def _label(values: Attrs) -> Labels:
    names = tuple(sorted(name for name in values if name != ATTR_EXEMPLARS))
    if not names:
        return NO_LABELS
    encoded = [attrs.encode_value(values[name]) for name in names]
    return names, tuple(text for _, text in encoded), "".join(letter for letter, _ in encoded)


def _runs_block(rows: Sequence[tuple[int, Writer, int]]) -> Block:
    return {
        "run": numbers("UInt32", [number for number, _, _ in rows]),
        "id": texts([writer.run for _, writer, _ in rows]),
        "project": texts([writer.project for _, writer, _ in rows]),
        "created": numbers("Int64", [now for _, _, now in rows]),
    }


def _writers_block(sources: Sequence[Source]) -> Block:
    writers = [source.writer for source in sources]
    return {
        "run": numbers("UInt32", [source.run_numbers.number for source in sources]),
        "writer": numbers("UInt64", [source.key for source in sources]),
        "id": texts([writer.id for writer in writers]),
        "project": texts([writer.project for writer in writers]),
        "name": texts([writer.name or "" for writer in writers]),
        "attempt": numbers("UInt16", [writer.attempt for writer in writers]),
        "rank": numbers("UInt32", [writer.rank for writer in writers]),
        "world_size": numbers("UInt32", [writer.world_size for writer in writers]),
        "local_rank": numbers("UInt32", [writer.local_rank for writer in writers]),
        "host": texts([writer.host for writer in writers]),
        "pid": numbers("UInt32", [writer.pid for writer in writers]),
        "main": numbers("UInt8", [writer.main for writer in writers]),
        "wall_ns": numbers("Int64", [writer.wall_ns for writer in writers]),
        "monotonic_ns": numbers("Int64", [writer.monotonic_ns for writer in writers]),
        "schema": numbers("UInt16", [writer.schema for writer in writers]),
        **attrs.block([writer.resource for writer in writers]),
    }


def _series_block(rows: Sequence[tuple[int, int, Identity, str]]) -> Block:
    identities = [identity for _, _, identity, _ in rows]
    instruments = [identity[4] for identity in identities]
    ends = ends_of(len(identity[3][0]) for identity in identities)
    return {
        "run": numbers("UInt32", [row[0] for row in rows]),
        "series": numbers("UInt64", [row[1] for row in rows]),
        "key": texts([identity[0] for identity in identities]),
        "axis": texts([identity[1] for identity in identities]),
        "rank": numbers("UInt32", [identity[2] for identity in identities]),
        "type": texts([instrument[0] for instrument in instruments]),
        "unit": texts([instrument[1] for instrument in instruments]),
        "description": texts([row[3] for row in rows]),
        "cumulative": numbers("UInt8", [instrument[2] for instrument in instruments]),
        "monotonic": numbers("UInt8", [instrument[3] for instrument in instruments]),
        "scope": texts([instrument[4] for instrument in instruments]),
        "attr_names": Lists(ends, texts([name for identity in identities for name in identity[3][0]])),
        "attr_values": Lists(ends, texts([text for identity in identities for text in identity[3][1]])),
        "attr_types": texts([identity[3][2] for identity in identities]),
    }
