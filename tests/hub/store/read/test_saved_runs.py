"""The table of runs survives a restart of the hub in a file, which never says anything but what the store has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope.hub.store.maintenance import retain
from stepscope.hub.store.read import run_catalog
from stepscope.hub.store.read.run_catalog import list_runs, save_runs, take_saved_runs
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.store import Store, open_store
from stepscope.model.names import EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch
from stepscope.model.records import Event, Metric, Record
from tests.hub.store.contract import T, losses, writer

pytest.importorskip("tests.chdb")

KEY = "trainer/loss"
BEGINNING = {
    "config": {"lr": 1e-3, "optim": {"name": "adam"}, "none": None, "nan": float("inf"), "blob": b"\0\xff"},
    "tags": {"team": "red", "good": True},
    "notes": "a note",
    "group": "g",
    "from_step": 7,
}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_catalog, "MIN_RUNS", 1)


@contextmanager
def reopened(folder: Path, *, saves: bool = True) -> Iterator[Store]:
    """The store as a hub has it from its start to its end; a hub that is killed does not save."""
    store = open_store(folder / "store")
    try:
        take_saved_runs(store.engine, folder / "runs.cache")
        yield store
        if saves:
            save_runs(store.engine, folder / "runs.cache")
    finally:
        store.close()


def started(run: str, *more: Record) -> Batch:
    """The first batch of a run that ended."""
    begin = Event(T, None, None, None, None, 9, EVENT_STARTED, BEGINNING)
    end = Event(T + 10**10, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"})
    return Batch(writer(run), 0, [begin, *losses([(1, 2.0), (2, 1.5)]), *more, end])


def table(store: Store, *keys: str) -> dict[str, RunRow]:
    """All runs by id, in the order of the table."""
    return {row.id: row for row in list_runs(store.engine, keys=keys or [KEY])}


@contextmanager
def summarised(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The questions for whole rows that are asked meanwhile."""
    asked: list[str] = []
    ask: Callable[[list[str]], list[object]] = store.engine.query_many
    with monkeypatch.context() as patch:
        patch.setattr(store.engine, "query_many", lambda questions: [asked.extend(questions), ask(questions)][1])
        yield asked


def test_the_rows_are_those_that_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart every field of every run is the same, without a question for whole rows."""
    with reopened(tmp_path) as store:
        store.write_many([started(run) for run in ("a", "b", "c")])
        before = table(store)
        assert before["a"].values[KEY].value == 1.5
        assert before["a"].settings == ("lr", "optim.name", "none", "nan", "blob")
    with reopened(tmp_path) as store, summarised(store, monkeypatch) as asked:
        after = table(store)
        assert asked == []
        assert (list(after), after) == (list(before), before)
        assert [row.settings for row in after.values()] == [row.settings for row in before.values()]
        assert (after["b"].beginning, after["b"].tags) == (BEGINNING, {"team": "red", "good": True})
        assert (after["c"].group, after["c"].from_step, after["c"].notes) == ("g", 7, "a note")


def test_what_is_written_after_the_start_counts(tmp_path: Path) -> None:
    """Runs that go on, begin or are dropped after a restart are as the store has them, and so are their metrics."""
    with reopened(tmp_path) as store:
        store.write_many([started(run) for run in ("a", "b", "c")])
        table(store)
    with reopened(tmp_path) as store:
        store.write_many([Batch(writer("a"), 1, losses([(3, 9.0)])), started("d")])
        assert {id: row.step for id, row in table(store, "other").items()} == {"d": 2, "c": 2, "b": 2, "a": 3}
        lasts = {id: row.values[KEY].value for id, row in table(store).items()}
        assert lasts == {"a": 9.0, "b": 1.5, "c": 1.5, "d": 1.5}
    with reopened(tmp_path) as store:
        assert {id: row.values[KEY].value for id, row in table(store).items()} == lasts
        assert retain(store, keep=1.0, clock=lambda: 2**62).runs == 4
        assert table(store) == {}


def test_many_changes_after_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more runs changed than are read one by one, no saved value is left."""
    monkeypatch.setattr(run_catalog, "_FEW", 1)
    with reopened(tmp_path) as store:
        store.write_many([started(run) for run in ("a", "b", "c")])
        table(store)
    with reopened(tmp_path) as store:
        store.write_many([Batch(writer(run), 1, losses([(3, 9.0)])) for run in ("a", "b")])
        table(store, "other")
        assert {id: row.values[KEY].value for id, row in table(store).items()} == {"a": 9.0, "b": 9.0, "c": 1.5}


@pytest.mark.parametrize("case", ["killed", "damaged", "cut", "another store", "written without it"])
def test_a_file_that_may_be_wrong_is_not_used(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill there is no file; one that is damaged, or of another state of the store, is thrown away."""
    file = tmp_path / "runs.cache"
    with reopened(tmp_path) as store:
        store.write_many([started(run) for run in ("a", "b")])
        before = table(store)
    if case == "killed":
        with reopened(tmp_path, saves=False):
            assert not file.exists()
    elif case == "damaged":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif case == "cut":
        file.write_bytes(file.read_bytes()[:-5])
    elif case == "another store":
        with reopened(tmp_path / "other") as store:
            store.write_many([started(run) for run in ("x", "y")])
            table(store)
        (tmp_path / "other" / "runs.cache").replace(file)
    else:
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("a"), 1, losses([(3, 9.0)])))
        before = table(store)
        store.close()
    with reopened(tmp_path) as store, summarised(store, monkeypatch) as asked:
        assert not file.exists()
        assert table(store) == before
        assert asked


def test_runs_that_cannot_be_saved_are_read(tmp_path: Path) -> None:
    """A run that a process edited, or whose configuration has a number beyond 64 bits, is read from the store."""
    edit = Event(T + 1, None, None, None, None, 9, EVENT_EDITED, {"name": "renamed"})
    huge = Event(T, None, None, None, None, 9, EVENT_STARTED, {"config": {"seed": 2**70}})
    with reopened(tmp_path) as store:
        store.write_many([started("a"), started("b", edit), Batch(writer("c"), 0, [huge, *losses([(1, 1.0)])])])
        before = table(store)
        assert (before["b"].name, len(before["b"].process_edits)) == ("renamed", 1)
        assert before["c"].beginning["config"] == {"seed": 2**70}
    with reopened(tmp_path) as store:
        assert table(store) == before


def test_the_metrics_that_were_asked_for_last_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many metrics some are in the file; the others are read when they are asked for."""
    monkeypatch.setattr(run_catalog.saved_runs, "MAX_METRICS", 1)
    with reopened(tmp_path) as store:
        values = Metric(T, 1, None, None, {"x": 3.0, "y": float(2**53) * 4})
        store.write_many([started("a", values), started("b")])
        before = table(store, KEY, "x", "y", "nobody's")
    with reopened(tmp_path) as store:
        assert table(store, "y", "nobody's")["a"].values == {"y": before["a"].values["y"]}
        assert table(store, KEY, "x", "y", "nobody's") == before
