"""All journals of a home as one stream: in turn, from the cursor on, and never past what was not settled."""

from pathlib import Path

import msgspec

from stepscope.journal.cursors import Cursors
from stepscope.journal.following import Following
from stepscope.journal.write import Journal
from stepscope.model.ports import Batch
from stepscope.model.records import Metric
from stepscope.model.writer import Writer


def append(home: Path, steps: range, run: str = "run", writer: str = "r0-a1-host-1-abc") -> Journal:
    """Append a batch for each step."""
    journal = Journal(home / "runs" / run / writer, Writer(id=writer, run=run, project="p"))
    for step in steps:
        journal.append([msgspec.msgpack.encode(Metric(step, step, None, None, {"loss": 0.5}))])
    journal.close()
    return journal


def steps_of(batches: list[Batch]) -> list[int]:
    """The steps in batches."""
    return [record.step or 0 for batch in batches for record in batch.records]


class Clock:
    """A time that passes when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_settled_is_not_read_again(tmp_path: Path) -> None:
    """What was settled stays read for the next reader; what was not comes again."""
    append(tmp_path, range(10))
    first = Following(tmp_path, "s")
    assert steps_of(first.read(10**6)) == list(range(10))
    assert steps_of(Following(tmp_path, "s").read(10**6)) == list(range(10))
    first.settle()
    assert Following(tmp_path, "s").read(10**6) == []
    assert steps_of(Following(tmp_path, "other").read(10**6)) == list(range(10))


def test_rewind(tmp_path: Path) -> None:
    """Reading goes back to the last settled place, and no further."""
    append(tmp_path, range(100))
    following = Following(tmp_path, "s")
    first = steps_of(following.read(200))
    following.settle()
    second = steps_of(following.read(200))
    following.rewind()
    assert steps_of(following.read(200)) == second
    assert first + second == list(range(len(first) + len(second)))


def test_writers_take_turns(tmp_path: Path) -> None:
    """A long journal does not keep a short one waiting."""
    append(tmp_path, range(1000))
    append(tmp_path, range(5000, 5003), writer="r1-a1-host-2-abc")
    following = Following(tmp_path, "s")
    early = steps_of(following.read(500)) + steps_of(following.read(500)) + steps_of(following.read(500))
    assert 5000 in early


def test_only_what_is_wanted(tmp_path: Path) -> None:
    """Runs and writers are chosen; a run that is named later is found."""
    append(tmp_path, range(3), run="a")
    append(tmp_path, range(3, 6), run="b")
    append(tmp_path, range(6, 9), run="b", writer="r0-a1-far-1-abc")
    runs, clock = ["a"], Clock()
    following = Following(tmp_path, "s", runs=lambda: runs, wanted=lambda name: name.host == "host", clock=clock)
    assert steps_of(following.read(10**6)) == [0, 1, 2]
    runs.append("b")
    clock.now += 2
    assert steps_of(following.read(10**6)) == [3, 4, 5]


def test_cursors_belong_to_the_host_that_wrote(tmp_path: Path) -> None:
    """Shippers of two hosts share a home and write different files."""
    append(tmp_path, range(3))
    append(tmp_path, range(3, 6), writer="r1-a1-far-1-abc")
    following = Following(tmp_path, "s")
    following.read(10**6)
    following.settle()
    assert sorted(path.name for path in (tmp_path / "cursors").iterdir()) == ["s@far.json", "s@host.json"]
    assert Cursors(tmp_path, "s@far").get("run/r1-a1-far-1-abc").seq == 3


def test_silent_writers_are_looked_at_rarely(tmp_path: Path) -> None:
    """News of a writer that was silent for long are found within half a minute, or at once when asked to hurry."""
    append(tmp_path, range(3))
    clock = Clock()
    clock.now = 2e9  # long after the file was written
    following = Following(tmp_path, "s", clock=clock)
    assert len(following.read(10**6)) == 3
    assert following.read(10**6) == []
    append(tmp_path, range(3, 6))
    assert following.read(10**6) == []
    clock.now += 31
    assert steps_of(following.read(10**6)) == [3, 4, 5]
    assert following.read(10**6) == []
    append(tmp_path, range(6, 9))
    following.hurry()
    assert steps_of(following.read(10**6)) == [6, 7, 8]


def test_unread_counts_bytes(tmp_path: Path) -> None:
    """Until it is settled it counts as unread."""
    append(tmp_path, range(100))
    following = Following(tmp_path, "s")
    whole = following.unread()
    assert whole == sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    following.read(10**6)
    assert following.unread() == whole
    following.settle()
    assert following.unread() == 0


def test_folders_that_went_are_forgotten(tmp_path: Path) -> None:
    """A run that was deleted is no trouble."""
    append(tmp_path, range(3))
    clock = Clock()
    following = Following(tmp_path, "s", clock=clock)
    following.read(10**6)
    for path in sorted((tmp_path / "runs").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    clock.now += 2
    assert following.read(10**6) == []
    following.settle()
    assert following.unread() == 0
