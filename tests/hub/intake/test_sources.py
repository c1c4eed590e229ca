"""The folder receiver: many writers, few looks at the disk."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.store_pump import FolderReceiver
from stepscope.journal import layout
from stepscope.journal.following import Cursors
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Record


class Clock:
    """A clock that is set by hand; files have the real time, so it starts there."""

    def __init__(self) -> None:
        import time

        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def journal(home: Path, run: str, rank: int = 0) -> Journal:
    """Open a trainer's journal."""
    writer = Writer(id=f"r{rank}-a1-host-1-abc{rank}", run=run, project="p", rank=rank)
    return Journal(layout.writer_folder(home, run, writer.id), writer, segment_bytes=2000)


def write(target: Journal, *steps: int) -> None:
    """Append one batch."""
    target.append([msgspec.msgpack.encode(Metric(1, step, None, None, {"loss": 0.5})) for step in steps])


def steps(receiver: FolderReceiver) -> list[tuple[str, int | None]]:
    """Read all that is due, as (run, step)."""
    found = []
    while items := receiver.read():
        found += [(item.batch.writer.run, record.step) for item in items for record in item.batch.records]
    return found


@pytest.fixture
def clock() -> Clock:
    """A clock set by hand."""
    return Clock()


def test_follows(tmp_path: Path, clock: Clock) -> None:
    """Old and new writers are read, each batch once, over the ends of segments."""
    receiver = FolderReceiver(tmp_path, Cursors(tmp_path, "x"), Counters(), clock=clock)
    assert steps(receiver) == []
    first = journal(tmp_path, "a")
    write(first, 0, 1)
    clock.now += 6
    assert steps(receiver) == [("a", 0), ("a", 1)]
    second = journal(tmp_path, "a", rank=1)
    for step in range(100):
        write(second, step)
    write(first, 2)
    clock.now += 6
    found = steps(receiver)
    assert sorted(found) == sorted([("a", 2), *(("a", step) for step in range(100))])
    clock.now += 6
    assert steps(receiver) == []
    assert receiver.writers == 2


def test_resumes(tmp_path: Path, clock: Clock) -> None:
    """What was settled is not read again, what was only read is."""
    target = journal(tmp_path, "a")
    write(target, 0)
    cursors = Cursors(tmp_path, "x")
    receiver = FolderReceiver(tmp_path, cursors, Counters(), clock=clock)
    assert steps(receiver) == [("a", 0)]
    assert receiver.settle()
    cursors.save()
    write(target, 1)
    clock.now += 6
    assert steps(receiver) == [("a", 1)]
    again = FolderReceiver(tmp_path, Cursors(tmp_path, "x"), Counters(), clock=clock)
    assert steps(again) == [("a", 1)]


def test_many_silent_writers(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand finished writers cost few looks at the disk, and one that comes back is seen."""
    for index in range(500):
        for rank in range(2):
            target = journal(tmp_path, f"run{index}", rank)
            write(target, 0)
            target.close()
    old = clock.now - 10_000
    for path in [*(tmp_path / "runs").rglob("*"), tmp_path / "runs"]:
        os.utime(path, (old, old))
    cursors = Cursors(tmp_path, "x")
    receiver = FolderReceiver(tmp_path, cursors, Counters(), clock=clock)
    assert len(steps(receiver)) == 1000
    receiver.settle()
    looks = 0
    real = os.stat

    def counted(*args: object, **kwargs: object) -> os.stat_result:
        nonlocal looks
        looks += 1
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", counted)
    for _ in range(600):
        clock.now += 0.1
        assert steps(receiver) == []
    assert looks / 60 < 250, f"{looks / 60} looks a second"
    clock.now += 61
    write(target, 7)
    _touch(target, clock.now)
    assert steps(receiver) == [("run499", 7)]
    write(target, 8)
    _touch(target, clock.now)
    clock.now += 0.3
    assert steps(receiver) == [("run499", 8)]


def _touch(target: Journal, now: float) -> None:
    path = target.current()
    assert path is not None
    os.utime(path, (now, now))


def test_vanished(tmp_path: Path, clock: Clock) -> None:
    """A run that is removed is forgotten, and one of the same name is read from its start."""
    write(journal(tmp_path, "a"), 0)
    receiver = FolderReceiver(tmp_path, Cursors(tmp_path, "x"), Counters(), clock=clock)
    assert steps(receiver) == [("a", 0)]
    receiver.settle()
    shutil.rmtree(tmp_path / "runs" / "a")
    clock.now += 61
    assert steps(receiver) == []
    assert receiver.writers == 0
    write(journal(tmp_path, "a"), 5)
    clock.now += 61
    assert steps(receiver) == [("a", 5)]


def test_damage_is_counted(tmp_path: Path, clock: Clock) -> None:
    """A damaged frame is counted and affects no other."""
    target = journal(tmp_path, "a")
    for step in range(3):
        write(target, step)
    path = target.current()
    assert path is not None
    data = bytearray(path.read_bytes())
    data[-60] ^= 0xFF
    path.write_bytes(data)
    write(target, 9)
    counters = Counters()
    receiver = FolderReceiver(tmp_path, Cursors(tmp_path, "x"), counters, clock=clock)
    found = steps(receiver)
    assert ("a", 9) in found
    assert len(found) < 4
    receiver.rewind()
    assert (counters.total("dropped", "folder"), steps(receiver)) == (0, found)
    receiver.settle()
    once = counters.total("dropped", "folder")
    receiver.settle()
    assert (once >= 1, counters.total("dropped", "folder")) == (True, once)


def test_rewind(tmp_path: Path, clock: Clock) -> None:
    """What was read and not settled is read again, at once and once."""
    receiver = FolderReceiver(tmp_path, Cursors(tmp_path, "x"), Counters(), clock=clock)
    target = journal(tmp_path, "a")
    write(target, 1)
    assert steps(receiver) == [("a", 1)]
    receiver.settle()
    write(target, 2, 3)
    clock.now += 1
    assert steps(receiver) == [("a", 2), ("a", 3)]
    receiver.rewind()
    receiver.rewind()
    assert steps(receiver) == [("a", 2), ("a", 3)]
    receiver.settle()
    receiver.rewind()
    assert steps(receiver) == []
    write(target, 4)
    clock.now += 1
    assert steps(receiver) == [("a", 4)]


def test_a_failing_mask_loses_nothing(tmp_path: Path, clock: Clock) -> None:
    """Batches that could not be masked are read again, and do not count as stored."""
    write(journal(tmp_path, "a"), 0, 1)
    failures = [ValueError("once")]

    def mask(records: list[Record]) -> list[Record]:
        if failures:
            raise failures.pop()
        return records

    receiver = FolderReceiver(tmp_path, Cursors(tmp_path, "x"), Counters(), mask, clock=clock)
    with pytest.raises(ValueError, match="once"):
        receiver.read()
    receiver.settle()
    assert steps(receiver) == [("a", 0), ("a", 1)]
