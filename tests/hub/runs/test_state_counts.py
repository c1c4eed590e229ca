"""Runs are counted by state over the store, without asking it every time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.runs.presence import Presence
from stepscope.hub.runs.run_states import STORE_SECONDS, Journals, RunStates, StateCounts
from stepscope.hub.store.read.run_row import Details, Ending, Rest, RunRow
from stepscope.journal.following import Cursors
from stepscope.model.names import EVENT_CONFIG, EVENT_EDITED, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record

NOW = 1_790_000_000


def row(run: str, status: str) -> RunRow:
    """A run that ended an hour ago."""
    then = (NOW - 3600) * 10**9
    ending = Ending(0, 1, then, status)
    return RunRow(1, run, "p", "", then, then, 1, 1, 1, 5, Rest(Details(("h",), endings=(ending,))), seen=then)


class World:
    """A store of rows, and a clock set by hand."""

    def __init__(self) -> None:
        self.rows: list[RunRow] = []
        self.asked = 0
        self.time = 0.0
        self.presence = Presence(lambda: float(NOW))
        journals = Journals(Path("/nowhere"), Cursors(Path("/nowhere"), "store"), {})
        self.states = RunStates(self.presence, journals, clock=lambda: float(NOW))
        self.state_counts = StateCounts(self.presence, self.runs, self.states, lambda: self.time, lambda: float(NOW))

    def runs(self) -> Iterator[RunRow]:
        """All rows."""
        self.asked += 1
        yield from self.rows

    def hear(self, run: str) -> None:
        """Take a record of a run that is alive."""
        records = [Metric(NOW * 10**9, 1, None, "stepscope", {"beat": 1.0})]
        self.presence.take([ReceivedBatch("test", Batch(Writer(id="w", run=run, project="p"), 0, list(records)))])


def test_stored_runs_count_after_a_restart() -> None:
    """What was stored before the hub started, and what came since, each once."""
    world = World()
    world.rows = [row("a", "finished"), row("b", "failed"), row("c", "finished")]
    assert world.state_counts.counts() == {"failed": 1, "finished": 2}
    world.hear("c")
    world.hear("new")
    assert world.state_counts.counts() == {"failed": 1, "finished": 1, "running": 2}


@pytest.mark.parametrize(
    ("late", "state"),
    [
        (Event(NOW * 10**9, None, None, None, None, 9, EVENT_EDITED, {"notes": "good"}), "failed"),
        (Event(NOW * 10**9, None, None, None, None, 9, EVENT_CONFIG, {"lr": 1}), "failed"),
        (Event((NOW - 9999) * 10**9, None, None, None, None, 9, EVENT_STARTED, {}), "failed"),
        (Metric(NOW * 10**9, 1, None, "stepscope", {"beat": 1.0}), "running"),
    ],
)
def test_a_late_edit_does_not_revive_a_run(late: Record, state: str) -> None:
    """A stored end stays when the run is edited or a batch is repeated, but not when its process continues."""
    world = World()
    world.presence.take([ReceivedBatch("test", Batch(Writer(id="w", run="a", project="p"), 0, [late]))])
    assert world.states.state(row("a", "failed")) == state


def test_the_store_is_polled_periodically() -> None:
    """Not at every question; and runs that are gone from it do not count any more, also those heard of."""
    world = World()
    world.rows = [row("a", "finished"), row("b", "finished")]
    world.hear("b")
    for _ in range(5):
        assert world.state_counts.counts() == {"finished": 1, "running": 1}
    assert world.asked == 1
    world.rows, world.time = [row("a", "finished")], STORE_SECONDS
    assert (world.state_counts.counts(), world.asked) == ({"finished": 1}, 2)


def test_a_failing_store_is_backed_off_from() -> None:
    """The error is logged once; until the next look the last counts hold."""
    world = World()
    world.state_counts._runs = lambda: 1 // 0  # type: ignore[assignment, return-value]
    world.hear("a")
    with pytest.raises(ZeroDivisionError):
        world.state_counts.counts()
    assert world.state_counts.counts() == {"running": 1}


@pytest.mark.parametrize(("beginning", "state"), [({"config": {}}, "crashed"), ({"received_from": "x"}, "stalled")])
def test_a_foreign_client_that_falls_silent_is_no_crash(beginning: dict[str, Any], state: str) -> None:
    """A start that was recorded for a foreign client promises no heartbeats, also after a restart of the hub."""
    then = (NOW - 600) * 10**9
    rest = Rest(Details(("h",), beginning=beginning))
    silent = RunRow(1, "a", "p", "", then, then, 1, 1, 1, 5, rest, seen=then)
    journals = Journals(Path("/nowhere"), Cursors(Path("/nowhere"), "store"), {})
    assert RunStates(Presence(), journals, clock=lambda: float(NOW)).state(silent) == state
