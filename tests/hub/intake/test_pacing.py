"""How far apart commits are while nobody reads: by how busy the machine is, and by what there is to store."""

from pathlib import Path

import pytest

from stepscope.hub.intake import pacing
from stepscope.hub.intake.pacing import (
    BUSY_PACE_SECONDS,
    LOOK_SECONDS,
    MAX_FOLLOWED,
    MAX_WAITING_BYTES,
    QUIET_PACE_SECONDS,
    Machine,
    Pacing,
)
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.model.ports import Batch, Writer


class Cpus:
    """A machine with one CPU, which is idle for a part of the time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._busy, self._idle = 0.0, 0, 0
        self._stat, self._pressure = folder / "stat", folder / "pressure"
        monkeypatch.setattr(pacing, "_PRESSURES", (folder / "missing", self._pressure))
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)
        self.passes(0.0)
        self.machine = Machine(lambda: self.now, self._stat)

    def passes(self, idle: float, pressure: float = 0.0, seconds: float = LOOK_SECONDS) -> None:
        """Let time pass in which the CPU was idle for a share of it, and tasks waited for it for another."""
        self.now += seconds
        self._idle += int(idle * seconds * 100)
        self._busy += int((1 - idle) * seconds * 100)
        self._stat.write_text(
            f"cpu  {self._busy} 0 0 {self._idle} 0 0 0 0 0 0\ncpu0 {self._busy} 0 0 {self._idle} 0 0 0 0 0 0\n"
            f"cpu1 0 0 0 {int(self.now * 100)} 0 0 0 0 0 0\nintr 1\n"
        )
        self._pressure.write_text(f"some avg10={pressure * 100:.2f} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n")


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cpus:
    """A machine."""
    return Cpus(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("idle", "pressure", "busy"), [(0.9, 0.0, False), (0.1, 0.0, True), (0.9, 0.6, True), (0.5, 0.1, False)]
)
def test_a_machine_is_busy_while_little_of_it_is_idle_or_tasks_wait(
    cpus: Cpus, idle: float, pressure: float, busy: bool
) -> None:
    """Of the CPUs that this process may use; what was before the last look does not count."""
    cpus.passes(1 - idle, 1 - pressure)
    cpus.machine.is_busy()
    cpus.passes(idle, pressure)
    assert cpus.machine.is_busy() is busy
    cpus.passes(1.0, 0.0, LOOK_SECONDS / 2)
    assert cpus.machine.is_busy() is busy  # not looked at again so soon


def test_a_system_that_tells_nothing_is_judged_by_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc the load of the last minute counts."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(pacing, "_PRESSURES", ())
    monkeypatch.setattr("os.getloadavg", lambda: (4.5, 1.0, 1.0))
    assert Machine(stat=tmp_path / "missing").is_busy()
    monkeypatch.setattr("os.getloadavg", lambda: (3.5, 9.0, 9.0))
    assert not Machine(stat=tmp_path / "missing").is_busy()


class World:
    """A pacing with what it looks at."""

    def __init__(self, cpus: Cpus) -> None:
        self.now, self.waiting = 0.0, 0
        self.alive: dict[str, bool | None] = {}
        self.pacing = Pacing(
            lambda writers: self.waiting * len(set(writers)),
            machine=cpus.machine,
            is_alive=lambda writer: self.alive.get(writer.id, True),
            clock=lambda: self.now,
        )

    def stores(self, *writers: str) -> None:
        """Store a batch of each writer."""
        self.pacing.take(
            [ReceivedBatch("folder", Batch(Writer(id=each, run="run", project=""), 0, [])) for each in writers]
        )

    def is_due(self) -> bool:
        """Look at the next time that it looks."""
        self.now += LOOK_SECONDS
        return self.pacing.is_due()


def test_commits_are_farther_apart_on_a_busy_machine(cpus: Cpus) -> None:
    """And as far as before once it is idle again."""
    world = World(cpus)
    cpus.passes(0.0)
    world.pacing.seconds()
    cpus.passes(0.0)
    assert world.pacing.seconds() == BUSY_PACE_SECONDS
    cpus.passes(1.0)
    assert world.pacing.seconds() == QUIET_PACE_SECONDS


def test_a_process_that_ended_is_stored_at_once(cpus: Cpus) -> None:
    """Once: what another hub's processes do is not known, and no reason to hurry."""
    world = World(cpus)
    world.stores("here", "elsewhere")
    world.alive["elsewhere"] = None
    assert not world.is_due()
    world.alive["here"] = False
    assert world.is_due()
    world.stores("here")  # its last records, and then nothing more
    assert not world.is_due()


def test_too_much_is_stored_at_once(cpus: Cpus) -> None:
    """What waits for a commit is bounded."""
    world = World(cpus)
    world.stores("w")
    world.waiting = MAX_WAITING_BYTES
    assert not world.is_due()
    world.waiting += 1
    assert world.is_due()
    assert not world.pacing.is_due()  # not looked at again so soon


def test_processes_are_remembered_within_a_limit(cpus: Cpus) -> None:
    """Very many short runs take no more memory."""
    world = World(cpus)
    for part in range(4):
        names = [f"{part}-{number}" for number in range(MAX_FOLLOWED + 10)]
        world.stores(*names)
        world.alive |= dict.fromkeys(names, False)
        assert world.is_due()
    assert len(world.pacing._ended) <= MAX_FOLLOWED
    assert not world.pacing._followed
