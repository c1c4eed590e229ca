"""Answers about a run that ends while the question is answered are of one moment."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.questions.runs import listing, read_run
from stepscope.hub.questions.toolbox.endpoint import Reader
from stepscope.hub.runs.presence import Presence
from stepscope.hub.runs.run_states import Journals, RunStates
from stepscope.hub.store.read import run_catalog
from stepscope.hub.store.store import Store, open_store
from stepscope.journal.following import Cursors
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch
from stepscope.model.records import Event
from tests.hub.store.contract import T, losses, writer

pytest.importorskip("tests.chdb")

TABLE: dict[str, Any] = {
    "filter": None,
    "sort": "-started",
    "metric": [],
    "column": [],
    "group": None,
    "archived": "hide",
    "cursor": None,
    "limit": 10,
}
ANSWERS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "table": lambda reader: listing.answer(reader, TABLE)["runs"][0],
    "run": lambda reader: read_run.answer(reader, {"run": "a"}),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with one attempt that failed."""
    made = open_store(tmp_path / "store")
    made.write(attempt(1, "failed"))
    yield made
    made.close()


def attempt(number: int, status: str) -> Batch:
    """All records of one attempt."""
    end = Event(T + number * 10**10, None, None, None, None, 0, EVENT_FINISHED, {"status": status})
    return Batch(writer("a", attempt=number), 0, [*losses([(number, 1.0)]), end])


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_run_that_ended_has_all_its_counts(store: Store, answer: str) -> None:
    """A second attempt is stored after the row was read and before its state is: the answer has both, or neither."""
    presence, pending = Presence(lambda: T / 1e9 + 60), [attempt(2, "finished")]

    def clock() -> float:
        while pending:
            store.write(pending[0])
            presence.take([ReceivedBatch("test", pending.pop())])
        return T / 1e9 + 60

    states = RunStates(presence, Journals(Path("/nowhere"), Cursors(Path("/nowhere"), "store"), {}), clock=clock)
    found = ANSWERS[answer](Reader(store.engine, states))
    assert (found["status"], found["attempts"], found["step"]) == ("finished", 2, 2)


def test_an_end_is_never_read_before_its_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever table is read when a second attempt is stored: an ending of it is in no row that has one attempt."""
    query, asked = store.engine.query, list[str]()

    def query_many(questions: list[str]) -> list[Any]:
        found = []
        for question in questions:
            if len(asked) == moment:
                store.write(attempt(moment + 2, "finished"))
            asked.append(question)
            found.append(query(question))
        return found

    monkeypatch.setattr(store.engine, "query_many", query_many)
    moment = 0
    while moment <= len(asked):
        asked.clear()
        (row,) = run_catalog.list_runs(store.engine, ids=["a"], keys=["trainer/loss"])
        assert row.attempts >= max(end.attempt for end in row.endings), moment
        moment += 1
    assert moment > 5
