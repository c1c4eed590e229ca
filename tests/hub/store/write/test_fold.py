"""Rollups: a chart made of cells is the chart that its points make."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stepscope.hub.questions.series import Buckets, SeriesQuery, read_series, rollup_sql
from stepscope.hub.questions.series.rollup_sql import MAX_CELLS, CellQuery, grid
from stepscope.hub.store import embedded, maintenance, rollups
from stepscope.hub.store.columns import Block
from stepscope.hub.store.engine import EngineError
from stepscope.hub.store.rollups import MARK, Rows
from stepscope.hub.store.store import Store, open_store
from stepscope.hub.store.write import fold
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Metric, Record
from tests.hub.store.contract import KEY, T, line, losses, numbered, writer

pytest.importorskip("tests.chdb")

RUN = "long"
NOT_NOW = 252
"""An engine's error that passes: too many parts."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point as it was logged."""

    rank: int
    attempt: int
    step: int
    time: int
    value: float


@dataclass
class World:
    """A store, and what should be in it."""

    folder: Path
    chance: random.Random
    stride: int = 1
    points: list[Point] = field(default_factory=list)
    sent: list[tuple[Batch, list[Point]]] = field(default_factory=list)
    ends: dict[tuple[int, int], int] = field(default_factory=dict)
    clock: int = T

    def __post_init__(self) -> None:
        self.store = open_store(self.folder)

    def reopen(self) -> None:
        """Close the store and open it again: all that was known of series is forgotten."""
        self.store.close()
        self.store = open_store(self.folder)

    def write(self, rank: int, attempt: int, steps: list[int]) -> None:
        """Store points at these steps, some of them not finite, and some steps twice."""
        made = []
        for step in steps:
            for _ in range(1 + (self.chance.random() < 0.02)):
                self.clock += self.chance.randint(1, 1000)
                value = float(self.chance.randint(-1000, 1000))
                if self.chance.random() < 0.002:
                    value = self.chance.choice([math.nan, math.inf, -math.inf, 1e9])
                made.append(Point(rank, attempt, step, self.clock, value))
        records: list[Record] = [Metric(each.time, each.step, None, "trainer", {"loss": each.value}) for each in made]
        batch = Batch(writer(RUN, rank, attempt), len(self.sent), records)
        self.store.write(batch)
        self.sent.append((batch, made))
        self.points += made

    def go_on(self) -> None:
        """Log the next steps of some rank; a new attempt begins before the end of the last one."""
        rank = self.chance.randrange(2)
        attempt = max((known for of, known in self.ends if of == rank), default=1)
        if (rank, attempt) in self.ends and self.chance.random() < 0.03:
            resumed = int(self.ends[rank, attempt] * self.chance.uniform(0.7, 1.1))
            attempt += 1
            self.ends[rank, attempt] = resumed
        begin = self.ends.get((rank, attempt), -40 * self.stride)
        steps = [begin + at * self.stride + self.chance.randrange(self.stride) for at in range(200)]
        self.ends[rank, attempt] = begin + 200 * self.stride
        self.write(rank, attempt, steps)

    def come_late(self) -> None:
        """Log steps long past."""
        (rank, attempt), end = self.chance.choice(sorted(self.ends.items()))
        self.write(rank, attempt, [self.chance.randrange(end + 1) for _ in range(self.chance.randint(1, 30))])

    def repeat(self) -> None:
        """Offer a batch again."""
        self.store.write(self.chance.choice(self.sent)[0])

    def fail(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a commit fail before it is complete: its rows are there, and do not count."""
        insert = self.store.engine.insert

        def fail_at_ledger(table: str, block: Block) -> None:
            if table == "ledger":
                raise EngineError("not now", NOT_NOW)
            insert(table, block)

        lost: list[Record] = [
            Metric(self.clock + at, at * self.stride, None, "trainer", {"loss": 1e12}) for at in range(300)
        ]
        with monkeypatch.context() as patch:
            patch.setattr(self.store.engine, "insert", fail_at_ledger)
            with pytest.raises(Retry):
                self.store.write(Batch(writer(RUN, 0, 1), 10**6, lost))


def expected(points: list[Point], asked: SeriesQuery) -> tuple[list[tuple[object, ...]], int] | None:
    """The buckets that the points make, and how many are superseded; None when they are few enough to be shown."""
    among = [
        each
        for each in points
        if asked.rank in (None, each.rank) and (not isinstance(asked.attempt, int) or each.attempt == asked.attempt)
    ]
    low = max(min(each.step for each in among), -(10**18) if asked.start is None else asked.start)
    high = min(max(each.step for each in among), 10**18 if asked.end is None else asked.end)
    inside = [each for each in among if low <= each.step <= high]
    newest: dict[tuple[int, int], int] = {}
    for each in among:
        newest[each.rank, each.step] = max(newest.get((each.rank, each.step), 0), each.attempt)
    kept = [each for each in inside if asked.attempt != "newest" or newest[each.rank, each.step] == each.attempt]
    if len(kept) <= asked.points:
        return None
    made = grid(low, high, asked.points)
    buckets: dict[int, list[Point]] = {}
    for each in sorted(kept, key=lambda each: (each.step, each.rank, each.attempt, each.time)):
        buckets.setdefault((each.step - made.start) // made.width, []).append(each)
    assert len(buckets) <= asked.points
    return [_mark(buckets[at]) for at in sorted(buckets)], len(inside) - len(kept)


def _mark(points: list[Point]) -> tuple[object, ...]:
    finite = [each.value for each in points if math.isfinite(each.value)]
    flags = {math.isnan(each.value) + 2 * (each.value == math.inf) + 4 * (each.value == -math.inf) for each in points}
    return (
        points[0].step, points[-1].step, min(finite, default=None), max(finite, default=None), len(points), sum(flags),
        len(points) - len(finite), str(points[-1].value), sum(finite) / len(finite) if finite else None,
    )  # fmt: skip


def _marks(found: Buckets) -> list[tuple[object, ...]]:
    assert found.non_finite is not None
    low, high, mean = (
        [None if math.isnan(value) else value for value in column.tolist()]
        for column in (found.low, found.high, found.mean)
    )
    return list(
        zip(
            found.first.tolist(), found.last_x.tolist(), low, high, found.count.tolist(), found.flags.tolist(),
            found.non_finite.tolist(), map(str, found.last.tolist()), mean, strict=True,
        )
    )  # fmt: skip


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Fold after a few points; whether each line that was read was made of cells."""
    for module in (rollups, fold):
        monkeypatch.setattr(module, "FOLD_POINTS", 300)
    monkeypatch.setattr(fold, "MAX_POINTS", 1500)
    monkeypatch.setattr(fold, "MAX_RANGES", 4)
    seen: list[bool] = []
    read = CellQuery.read

    def watched(query: CellQuery) -> tuple[Rows, int] | None:
        found = read(query)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(CellQuery, "read", watched)
    return seen


@pytest.mark.parametrize(("seed", "stride", "most"), [(1, 1, MAX_CELLS), (2, 7, 0), (3, 60, MAX_CELLS)])
def test_cells_make_the_chart_that_points_make(
    tmp_path: Path, answers: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int, stride: int, most: int
) -> None:
    """At any zoom, whatever comes late, twice, in several attempts and ranks, not finite, or from a failed commit.

    More than `most` cells are merged by the engine: here by one without wide numbers, as old servers are.
    """
    monkeypatch.setattr(rollup_sql, "MAX_CELLS", most)
    monkeypatch.setattr(embedded.Chdb, "modern", most > 0)
    chance = random.Random(seed)
    world = World(tmp_path / "store", chance, stride)
    try:
        for turn in range(40):
            world.go_on()
            if chance.random() < 0.2:
                world.come_late()
            if chance.random() < 0.1:
                world.repeat()
            if chance.random() < 0.1:
                world.fail(monkeypatch)
                world.go_on()  # recovers first
            if chance.random() < 0.1:
                world.reopen()
            if turn % 8 == 7:
                _compare(world, answers)
        assert maintenance.check(world.store.engine) == []
        world.store.fold_all()
        _compare(world, answers)
        assert answers.count(True) > 5
        assert maintenance.check(world.store.engine) == []
    finally:
        world.store.close()


def _compare(world: World, answers: list[bool]) -> None:
    chance, end = world.chance, max(world.ends.values())
    number = numbered(world.store, RUN)
    for _ in range(6):
        ends = sorted(chance.sample(range(-50 * world.stride, end), 2))
        asked = SeriesQuery(
            number,
            KEY,
            points=chance.choice([1, 3, 10, 30, 100]),
            start=chance.choice([None, ends[0]]),
            end=chance.choice([None, ends[1]]),
            rank=chance.choice([None, None, 0]),
            attempt=chance.choice(["newest", "newest", "all", 1]),
        )
        if not any(asked.rank in (None, each.rank) for each in world.points):
            continue
        count = len(answers)
        found = read_series(world.store.engine, asked)
        wanted = expected(world.points, asked)
        if wanted is None:
            assert found.buckets is None
            continue
        assert found.buckets is not None
        marks, superseded = wanted
        exact = slice(0, 8 if answers[count:] == [True] else 7)  # points alone: of two at a step, either is the last
        assert [mark[exact] for mark in _marks(found.buckets)] == [mark[exact] for mark in marks]
        assert [mark[8] for mark in _marks(found.buckets)] == pytest.approx([mark[8] for mark in marks])
        assert (found.total, found.superseded) == (sum(mark[4] for mark in marks), superseded)  # type: ignore[misc]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(tmp_path / "store")
    yield opened
    opened.close()


def _rows(store: Store, condition: str) -> int:
    return int(store.engine.query(f"SELECT count() AS held FROM rollups WHERE {condition}").one("held"))


def test_a_deleted_run_leaves_no_cells(store: Store, answers: list[bool]) -> None:
    """They go with the points; those of other runs stay."""
    for run in ("one", "other"):
        store.write(Batch(writer(run), 0, losses((step, 1.0) for step in range(5000))))
    gone, stays = numbered(store, "one"), numbered(store, "other")
    maintenance.drop_runs(store, [gone])
    assert _rows(store, f"bitShiftRight(series, 32) = {gone}") == 0
    assert _rows(store, f"bitShiftRight(series, 32) = {stays} AND level = {MARK}") == 1
    assert line(store, "other", points=10).total == 5000
    assert answers[-1]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the engine is asked, of which its memory of answers is no part."""
    asked: list[str] = []
    run = embedded._run

    def watched(connection: object, sql: str, format: str = "Null") -> bytes:
        if sql.startswith("SELECT"):
            asked.append(sql)
        return run(connection, sql, format)

    monkeypatch.setattr(embedded, "_run", watched)
    return asked


def test_the_next_chart_of_a_line_asks_for_the_points_at_its_ends_alone(
    store: Store, answers: list[bool], statements: list[str]
) -> None:
    """Cells of a range nearby are remembered, and no point came after those that are in cells."""
    store.write(Batch(writer(RUN), 0, losses((step, float(step)) for step in range(5000))))
    assert line(store, RUN, points=4, start=10, end=4900).total == 4891
    statements.clear()
    assert line(store, RUN, points=4, start=40, end=4880).total == 4841
    assert [sql.partition("FROM ")[2].split()[0] for sql in statements] == ["metrics"]
    statements.clear()
    assert line(store, RUN, points=4, start=None, end=None).total == 5000
    assert statements == []
    store.write(Batch(writer(RUN), 1, losses((step, 1.0) for step in (7, 5000))))  # too few to be folded
    assert line(store, RUN, points=4, start=None, end=None).total == 5002
    assert answers == [True] * 4


def test_a_short_series_has_no_cells(store: Store) -> None:
    """It is read point by point, and costs nothing more."""
    store.write(Batch(writer("short"), 0, losses((step, 1.0) for step in range(5000))))
    assert _rows(store, "1") == 0


def test_a_fold_that_fails_costs_nothing(store: Store, answers: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is complete, the points are read one by one, and a later fold has all of them."""
    insert = store.engine.insert

    def fail(table: str, block: Block) -> None:
        if table == "rollups":
            raise EngineError("not now", NOT_NOW)
        insert(table, block)

    with monkeypatch.context() as patch:
        patch.setattr(store.engine, "insert", fail)
        store.write(Batch(writer(RUN), 0, losses((step, float(step)) for step in range(4000))))
    assert (line(store, RUN, points=4).total, answers) == (4000, [False])
    store.write(Batch(writer(RUN), 1, losses((step, float(step)) for step in range(4000, 5000))))
    assert (line(store, RUN, points=4).total, answers) == (5000, [False, True])


def test_cells_of_two_kinds_are_made_anew(store: Store, answers: list[bool]) -> None:
    """When the first folds of two hubs met, points are read until the next fold has replaced the cells."""
    store.write(Batch(writer(RUN), 0, losses((step, 1.0) for step in range(5000))))
    store.engine.execute(
        f"INSERT INTO rollups (series, level, at, upto, points) SELECT series, {MARK}, 1, 1, 5000 FROM rollups LIMIT 1"
    )
    assert (line(store, RUN, points=4).total, answers[-1]) == (5000, False)
    store.write(Batch(writer(RUN), 1, losses((step, 1.0) for step in range(5000, 6000))))
    assert (line(store, RUN, points=4).total, answers[-1]) == (6000, True)


def test_check_finds_a_wrong_cell(store: Store, answers: list[bool]) -> None:
    """A cell with other points than those that are stored is damage."""
    store.write(Batch(writer(RUN), 0, losses((step, 1.0) for step in range(5000))))
    assert maintenance.check(store.engine) == []
    store.engine.execute("ALTER TABLE rollups DELETE WHERE level = 0 AND at = 128")
    assert maintenance.check(store.engine) == ["rollups: 4872 points instead of 5000 in 1 series"]
