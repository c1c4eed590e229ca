"""The oldest runs go first, whole eras at once, and nothing comes back by itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stepscope.hub.store import maintenance
from stepscope.hub.store.maintenance import retain
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.store import Store, open_store
from stepscope.model.ports import Batch
from stepscope.model.records import Record, Span
from tests.hub.store.contract import T, floats, line, losses, writer

pytest.importorskip("tests.chdb")

DAY = 86400 * 10**9


class Clock:
    """The hub's clock."""

    now = T

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until it is set."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """A store with runs of day 0, 3, 20 and 21."""
    opened = open_store(tmp_path / "store", clock=clock)
    for day in (0, 3, 20, 21):
        clock.now = T + day * DAY
        opened.write(_batch(f"day{day}", 0))
    yield opened
    opened.close()


def _batch(run: str, seq: int) -> Batch:
    span: Record = Span(T, 1, seq, None, b"t" * 16, b"s" * 8, None, run)
    return Batch(writer(run), seq, [*losses((step, float(step)) for step in range(5000)), span])


def ids(store: Store) -> set[str]:
    """The runs that are there."""
    return {row.id for row in list_runs(store.engine)}


def test_runs_go_by_age(store: Store, clock: Clock) -> None:
    """Those silent for longer than asked; the others keep every point, and the totals add up."""
    dropped = retain(store, keep=19 * 86400, clock=clock)
    assert (dropped.runs, ids(store)) == (1, {"day3", "day20", "day21"})
    assert dropped.bytes > 0
    assert line(store, "day3").total == 5000
    assert maintenance.check(store.engine) == []
    names = store.engine.query("SELECT name FROM spans")["name"]
    assert sorted(names) == ["day20", "day21", "day3"]


def test_runs_go_by_bytes_but_not_the_living(store: Store, clock: Clock) -> None:
    """The longest silent first, until the rest fits; a run that writes stays whatever it takes."""
    half = maintenance.info(store.engine).bytes // 2
    retain(store, max_bytes=half, clock=clock)
    assert ids(store) in ({"day20", "day21"}, {"day21"})
    retain(store, max_bytes=1, clock=clock)
    assert ids(store) == {"day21"}


def test_a_dropped_run_does_not_come_back_unless_it_goes_on(store: Store, clock: Clock) -> None:
    """Its old batches are not stored again; a new batch starts it again with another number."""
    before = {row.id: row.number for row in list_runs(store.engine)}
    retain(store, keep=86400, clock=clock)
    assert ids(store) == {"day20", "day21"}
    store.write(_batch("day0", 0))
    assert ids(store) == {"day20", "day21"}
    assert store.write_many([_batch("day0", 0), _batch("day0", 1)]) == [None, None]
    (row,) = list_runs(store.engine, ids=["day0"])
    assert row.number != before["day0"]
    assert (row.counts["points"], line(store, "day0").total) == (5000, 5000)
    assert floats(line(store, "day0", start=7, end=8)) == [7.0, 8.0]
    assert maintenance.check(store.engine) == []


class Files:
    """Files of runs beside the store, by the numbers of the runs."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes

    def file_bytes(self) -> int:
        """Add them up."""
        return sum(self.sizes.values())

    def delete_files(self, runs: Sequence[int]) -> None:
        """Delete those of some runs."""
        for run in runs:
            self.sizes.pop(run, None)


def test_files_count_and_go_with_their_runs(store: Store, clock: Clock) -> None:
    """A store that is small enough is too large with its files; what is dropped takes its files along."""
    numbers = {row.id: row.number for row in list_runs(store.engine)}
    files = Files(dict.fromkeys(numbers.values(), 10**9))
    most = maintenance.info(store.engine).bytes * 2 + 2 * 10**9
    dropped = retain(store, max_bytes=most, files=files, clock=clock)
    assert ids(store) == {"day20", "day21"}
    assert set(files.sizes) == {numbers["day20"], numbers["day21"]}
    assert dropped.bytes > 2 * 10**9 - 10**6
    clock.now += 30 * DAY
    retain(store, keep=86400, files=files, clock=clock)
    assert files.sizes == {}
