"""The hub's states of runs: the same as the command line's, at every moment of an import."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from stepscope.cli.listed_run import listed_run
from stepscope.hub.home import HubHome
from stepscope.hub.runs.run_states import RunStatus
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.store.read.finding_catalog import read_findings
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.store import open_store
from stepscope.model import names
from stepscope.model.records import Event, Record
from tests.cli.journals import START, age, event, finished, metric, this_host, write
from tests.conftest import Start
from tests.forked import stepscope
from tests.hub.conftest import StartHub
from tests.waiting import wait_until

LONG_AGO = 3600.0


class World:
    """A hub whose journals are read by hand, batch by batch."""

    def __init__(self, home: Path) -> None:
        place = HubHome(home)
        self.home = home
        self.hub = Hub(HubOptions(home=home), place, open_store(place.store), Tokens(place.tokens))

    def read(self, limit: int = 1) -> bool:
        """Store about so many bytes of the next journal; False when all are stored."""
        items = self.hub.folder.read(limit)
        for item in items:
            self.hub.store.write(item.batch)
        self.hub.presence.take(items)
        self.hub.folder.settle()
        return bool(items)

    def read_all(self) -> None:
        """Store everything."""
        while self.read(1 << 22):
            pass

    def row(self, run: str) -> RunRow:
        """A run of the store."""
        return list_runs(self.hub.store.engine, ids=[run])[0]

    def status(self, run: str) -> RunStatus:
        """The state of a run, which is the same among many."""
        row = self.row(run)
        found: list[RunStatus] = []

        def are_equal() -> bool:  # what is on disk is looked at in the background, between two of them too
            states = self.hub.states
            found[:] = [states.status(row), *(states.at_once()(row) for _ in range(2))]
            return found[1:] == found[:1] * 2

        wait_until(are_equal)
        return found[0]

    def crashes(self, run: str) -> list[str]:
        """The crashes that are found."""
        self.hub.diagnosing.forget(run)
        self.hub.diagnosing.catch_up(run)
        found = read_findings(self.hub.store.engine, self.row(run).number)
        return [each.text for each in found if each.kind in ("crash", "dead_rank")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A hub on an empty home."""
    made = World(tmp_path / "home")
    yield made
    made.hub.close(0.1)


def began() -> Event:
    """The event with which a run begins."""
    return event(names.EVENT_STARTED, config={})


def steps(first: int, count: int) -> list[Record]:
    """Some steps."""
    return [metric(step, loss=1.0) for step in range(first, first + count)]


@pytest.mark.parametrize("host", ["elsewhere", this_host()])
def test_a_run_is_importing_until_its_journal_is_read(world: World, host: str) -> None:
    """A run that finished long ago is never called crashed, and no crash is found, while the hub catches up."""
    parts = [[began()], *(steps(100 * part, 100) for part in range(5)), [finished()]]
    age(write(world.home, "R", *parts, host=host), LONG_AGO)
    seen = []
    while world.read():
        seen.append(world.status("R"))
        assert world.crashes("R") == []
    assert [each.state for each in seen] == ["importing"] * 6 + ["finished"]
    shares = [each.read / each.size for each in seen[:-1]]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1
    assert listed_run(world.home, "R").status == "finished"


def test_an_older_attempt_that_is_not_read_yet_has_not_crashed(world: World) -> None:
    """The newest journal is read first; what its predecessor reported comes later."""
    age(write(world.home, "R", [began()], steps(0, 50), [finished("preempted")], attempt=1), LONG_AGO)
    age(write(world.home, "R", [began()], steps(50, 50), [finished()], attempt=2), LONG_AGO / 2)
    states = set()
    while world.read():
        states.add(world.status("R").state)
        assert world.crashes("R") == []
    assert states == {"importing", "finished"}


def test_a_new_attempt_on_disk_counts_before_it_is_read(world: World) -> None:
    """A run that failed and was started again is running, although nothing of its new start is stored."""
    age(write(world.home, "R", [began(), *steps(0, 9), finished("failed")]), LONG_AGO)
    world.read_all()
    assert world.status("R").state == "failed"
    living = {"host": this_host(), "pid": os.getpid(), "wall_ns": time.time_ns()}
    write(world.home, "R", [began()], attempt=2, **living)
    wait_until(lambda: world.status("R").state == "running")


def test_a_torn_tail_is_not_waited_for(world: World) -> None:
    """Half a frame at the end of a dead process's journal is all there will ever be."""
    folder = write(world.home, "R", [began()], steps(0, 9), host=this_host())
    (path,) = folder.glob("*.seg")
    path.write_bytes(path.read_bytes()[:-5])
    world.read_all()
    assert world.status("R").state == "crashed"
    assert world.crashes("R") != []


DEAD, HERE = {"host": "elsewhere"}, {"host": this_host()}
ALIVE = {"host": this_host(), "pid": os.getpid()}


@pytest.mark.parametrize(
    ("who", "end", "seconds", "state"),
    [
        (DEAD, None, 0.0, "running"),
        (DEAD, None, 60.0, "stalled"),
        (DEAD, None, LONG_AGO, "crashed"),
        (DEAD, "finished", LONG_AGO, "finished"),
        (DEAD, "failed", 0.0, "failed"),
        (HERE, None, 0.0, "crashed"),
        (HERE, None, LONG_AGO, "crashed"),
        (HERE, "preempted", 0.0, "preempted"),
        (ALIVE, None, 0.0, "running"),
        (ALIVE, None, LONG_AGO, "stalled"),
        (ALIVE, "finished", 0.0, "finished"),
    ],
)
def test_hub_and_command_line_agree(
    world: World, who: dict[str, object], end: str | None, seconds: float, state: str
) -> None:
    """On the same journals, whether the hub read them or another hub did before it."""
    records = [began(), *steps(0, 9), *([finished(end)] if end else [])]
    wall = {"wall_ns": time.time_ns()} if who is ALIVE else {}
    age(write(world.home, "R", records, **who, **wall), seconds)
    world.read_all()
    assert (world.status("R").state, listed_run(world.home, "R").status) == (state, state)
    world.hub.presence._runs.clear()  # as after a restart: everything is stored, nothing was heard
    assert world.status("R").state == state


def test_two_ranks_agree(world: World) -> None:
    """One rank died, the other writes on: that needs a look, at both places."""
    write(world.home, "R", [began(), *steps(0, 9)], host=this_host(), rank=0)
    write(world.home, "R", [began(), *steps(0, 9)], **ALIVE, wall_ns=time.time_ns(), rank=1)
    world.read_all()
    assert (world.status("R").state, listed_run(world.home, "R").status) == ("crashed", "crashed")


def test_a_pid_that_was_given_again_is_not_the_writer(world: World) -> None:
    """A process that started long after the writer is another one; the time of the last record decides."""
    age(write(world.home, "R", [began()], host=this_host(), pid=os.getpid(), wall_ns=START), LONG_AGO)
    world.read_all()
    assert (world.status("R").state, listed_run(world.home, "R").status) == ("crashed", "crashed")


TRAINER = """
import stepscope, time
run = stepscope.init()
run.log({"loss": 1.0}, step=1)
run.flush()
time.sleep(600)
"""


def test_a_killed_trainer_is_seen_at_once(
    home: Path, start: Start, start_hub: StartHub, until: Callable[..., None]
) -> None:
    """The hub on its host says crashed within seconds of SIGKILL, as the command line does."""
    hub = start_hub(home=home)

    def status() -> list[str]:
        return [run["status"] for run in hub.request("GET", "/api/runs").json()["runs"]]

    program = start(TRAINER)
    until(lambda: status() == ["running"])
    os.killpg(program.pid, signal.SIGKILL)
    program.process.wait()
    until(lambda: status() == ["crashed"], seconds=10)
    assert "crashed" in stepscope("runs", "--home", home).stdout
