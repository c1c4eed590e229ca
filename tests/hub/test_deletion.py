"""What a deletion takes from the store when another hub wrote more of the run before it knew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub.runs.deletion import delete_run, finish_deletions
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.store import Store, open_store
from stepscope.journal.run_edits import Edits
from stepscope.model.ports import Batch, Writer
from tests.hub.store.contract import T, losses, writer

LATER = T + 60 * 10**9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store whose clock is a minute ahead of that of the hub that deletes."""
    opened = open_store(tmp_path_factory.mktemp("deletion") / "store", clock=lambda: LATER)
    yield opened
    opened.close()


def deleted_elsewhere(home: Path, run: str) -> Edits:
    """The edits of a home after another hub deleted a run, by its own clock."""
    edits = Edits(home, lambda: T + 1)
    delete_run(home, edits, run, "somebody", None)
    return edits


def known(store: Store, run: str) -> list[str]:
    """The run, if it is there."""
    return [row.id for row in list_runs(store.engine, ids=[run])]


def test_records_that_came_after_the_deletion_go_with_the_run(store: Store, tmp_path: Path) -> None:
    """Their process began before it, so they are no new start, whatever the clocks of the hubs say."""
    store.write(Batch(writer("late"), 0, losses([(0, 1.0)])))
    edits = deleted_elsewhere(tmp_path, "late")
    store.write(Batch(writer("late"), 1, losses([(1, 1.0)])))
    finish_deletions(tmp_path, edits, store)
    assert known(store, "late") == []


def test_a_new_start_stays(store: Store, tmp_path: Path) -> None:
    """A process that began after the deletion keeps its run."""
    edits = deleted_elsewhere(tmp_path, "again")
    began = Writer(id="r0-a1-host-8-abd", run="again", project="contract", wall_ns=LATER)
    store.write(Batch(began, 0, losses([(0, 1.0)])))
    finish_deletions(tmp_path, edits, store)
    assert known(store, "again") == ["again"]


def test_a_deletion_is_later_than_what_was_received(store: Store, tmp_path: Path) -> None:
    """A hub whose clock is behind deletes what it has seen."""
    store.write(Batch(writer("ahead"), 0, losses([(0, 1.0)])))
    (row,) = list_runs(store.engine, ids=["ahead"])
    edits = Edits(tmp_path, lambda: T + 1)
    delete_run(tmp_path, edits, "ahead", "somebody", None, row.received)
    assert edits.deleted()["ahead"] > LATER
    finish_deletions(tmp_path, edits, store)
    assert known(store, "ahead") == []
