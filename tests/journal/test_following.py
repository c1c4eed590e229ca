"""All journals of a home as one stream: in turn, from the cursor on, and never past what was not settled."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from stepscope.journal.following import Cursors, Following
from stepscope.journal.segments import Journal, Position
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric


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
    """A clock that only moves when the test moves it."""

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


def test_a_run_that_is_wanted_again_goes_on(tmp_path: Path) -> None:
    """What was delivered of a run is not sent again when it is unwanted for a while."""
    append(tmp_path, range(3), run="a")
    runs, clock = ["a"], Clock()
    following = Following(tmp_path, "s", runs=lambda: runs, clock=clock)
    assert steps_of(following.read(10**6)) == [0, 1, 2]
    following.settle()
    runs.clear()
    clock.now += 2
    assert (following.read(10**6), following.writers) == ([], 0)
    append(tmp_path, range(3, 5), run="a")
    runs.append("a")
    clock.now += 2
    assert steps_of(following.read(10**6)) == [3, 4]


def test_a_clock_that_is_set_back_delays_nothing(tmp_path: Path) -> None:
    """Writers are looked at again at once, not when the clock has caught up."""
    append(tmp_path, range(3))
    clock = Clock()
    clock.now = 2e9
    following = Following(tmp_path, "s", clock=clock)
    assert len(following.read(10**6)) == 3
    assert following.read(10**6) == []
    append(tmp_path, range(3, 6))
    clock.now -= 3600
    assert steps_of(following.read(10**6)) == [3, 4, 5]


def test_a_failure_at_one_writer_loses_nothing_of_another(tmp_path: Path) -> None:
    """Batches read before the failure are returned, and the failing writer is tried again."""
    append(tmp_path, range(3))
    append(tmp_path, range(3, 6), writer="r1-a1-far-1-abc")
    path = tmp_path / "cursors" / "s@far.json"
    path.parent.mkdir()
    path.symlink_to(path)
    clock = Clock()
    following = Following(tmp_path, "s", clock=clock)
    found: list[int] = []
    for _ in range(2):
        try:
            found += steps_of(following.read(10**6))
        except OSError:
            continue
    following.settle()
    assert found == [0, 1, 2]
    path.unlink()
    clock.now += 6
    assert steps_of(following.read(10**6)) == [3, 4, 5]


def test_what_could_not_be_saved_is_saved_next(tmp_path: Path) -> None:
    """Positions that could not be saved are saved next time, even if nothing was read in between."""
    append(tmp_path, range(3))
    following = Following(tmp_path, "s")
    following.read(10**6)
    path = tmp_path / "cursors" / "s@host.json"
    path.mkdir(parents=True)  # a folder cannot be replaced by a file
    with pytest.raises(IsADirectoryError):
        following.settle()
    path.rmdir()
    following.settle()
    assert Following(tmp_path, "s").read(10**6) == []


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
    """News of a writer that was silent for long are found within half a minute, or at once after `check_all`."""
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
    following.check_all()
    assert steps_of(following.read(10**6)) == [6, 7, 8]


def test_unread_counts_bytes(tmp_path: Path) -> None:
    """Bytes count as unread until they are settled."""
    append(tmp_path, range(100))
    following = Following(tmp_path, "s")
    whole = following.unread()
    assert whole == sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    following.read(10**6)
    assert following.unread() == whole
    following.settle()
    assert following.unread() == 0


def test_folders_that_went_are_forgotten(tmp_path: Path) -> None:
    """A deleted run is not an error."""
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


HERE = Position(segment=3, offset=4000, seq=70, last=3900, crc=2**32 - 1)


def file_of(home: Path) -> Path:
    """Return the one file of the cursors' folder."""
    (path,) = (home / "cursors").iterdir()
    return path


def test_positions_are_found_again(tmp_path: Path) -> None:
    """What `set` and `forget` did lasts from `save` on, for each sink apart."""
    cursors = Cursors(tmp_path, "otlp")
    assert cursors.get("run/writer") == Position()
    cursors.set("run/writer", HERE)
    cursors.set("run/öther", Position(seq=1))
    assert Cursors(tmp_path, "otlp").get("run/writer") == Position()
    cursors.save()
    again = Cursors(tmp_path, "otlp")
    assert (again.get("run/writer"), again.get("run/öther")) == (HERE, Position(seq=1))
    assert Cursors(tmp_path, "hub").get("run/writer") == Position()
    again.forget("run/writer")
    again.forget("never seen")
    again.save()
    assert Cursors(tmp_path, "otlp").get("run/writer") == Position()
    assert file_of(tmp_path).name == "otlp.json"


def test_names_of_sinks_may_have_dots(tmp_path: Path) -> None:
    """Two sinks whose names differ behind a dot have two files."""
    for sink in ("otlp.http", "otlp.grpc"):
        cursors = Cursors(tmp_path, sink)
        cursors.set("w", HERE)
        cursors.save()
    assert sorted(path.name for path in (tmp_path / "cursors").iterdir()) == ["otlp.grpc.json", "otlp.http.json"]


def test_no_flipped_bit_moves_a_position(tmp_path: Path) -> None:
    """With any one bit flipped the positions are as saved or at the start, never elsewhere, and nothing raises."""
    cursors = Cursors(tmp_path, "sink")
    cursors.set("w", HERE)
    cursors.save()
    path = file_of(tmp_path)
    data = path.read_bytes()
    with open(path, "r+b", buffering=0) as file:
        for bit in range(len(data) * 8):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            os.pwrite(file.fileno(), changed, 0)
            assert Cursors(tmp_path, "sink").get("w") in (HERE, Position())


def test_no_cut_moves_a_position(tmp_path: Path) -> None:
    """A file cut anywhere counts as none."""
    cursors = Cursors(tmp_path, "sink")
    cursors.set("w", HERE)
    cursors.save()
    path = file_of(tmp_path)
    data = path.read_bytes()
    for cut in reversed(range(len(data))):
        os.truncate(path, cut)
        assert Cursors(tmp_path, "sink").get("w") == Position()


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", b"[1]", b"\xff\xfe", b'{"crc": 0, "positions": {}}', b'{"crc": -1, "positions": 1}'],
)
def test_a_file_of_something_else_counts_as_none(tmp_path: Path, content: bytes) -> None:
    """Whatever is in the file, the start is where to begin, and it can be saved over."""
    cursors = Cursors(tmp_path, "sink")
    cursors.save()
    file_of(tmp_path).write_bytes(content)
    cursors = Cursors(tmp_path, "sink")
    assert cursors.get("w") == Position()
    cursors.set("w", HERE)
    cursors.save()
    assert Cursors(tmp_path, "sink").get("w") == HERE


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """A failing file system raises; believing the file empty would send everything again."""
    path = tmp_path / "cursors" / "sink.json"
    path.parent.mkdir()
    path.symlink_to(path)
    with pytest.raises(OSError, match=r"sink\.json") as raised:
        Cursors(tmp_path, "sink")
    assert raised.value.errno == errno.ELOOP


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A failed save raises OSError and leaves only the old file."""
    cursors = Cursors(tmp_path, "sink")
    cursors.set("w", HERE)
    cursors.save()
    path = file_of(tmp_path)
    path.rename(tmp_path / "kept")
    path.mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(IsADirectoryError):
        cursors.save()
    path.rmdir()
    assert list(path.parent.iterdir()) == []
    (tmp_path / "kept").rename(path)
    assert Cursors(tmp_path, "sink").get("w") == HERE
