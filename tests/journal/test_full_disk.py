"""On a full or read-only disk an append fails as a whole, earlier records stay readable, and writing resumes later."""

import errno
from pathlib import Path

import msgspec
import pytest

from stepscope.journal import layout, quota
from stepscope.journal.following import Cursors
from stepscope.journal.segments import Journal, Position, Tail, read_writer
from stepscope.model.ports import Writer
from stepscope.model.records import Log
from tests.disks import mount, small_disk

__all__ = ["small_disk"]


def pack(number: int) -> bytes:
    """Pack a log of about a kilobyte with a number to be known by."""
    return msgspec.msgpack.encode(Log(number, None, None, None, None, 9, "x" * 1000))


def numbers(folder: Path) -> list[int]:
    """Return the numbers of all records in a folder."""
    return [record.time for batch in read_writer(folder) for record in batch.records]


def fill(journal: Journal, start: int) -> int:
    """Append until the disk is full; return the number that did not fit any more."""
    for number in range(start, start + 10_000):
        try:
            journal.append([pack(number)] * 3)
        except OSError as error:
            return number if error.errno == errno.ENOSPC else -1
    return -1


@pytest.mark.parametrize("segment_bytes", [1, 10_000, 10_000_000])
def test_a_full_disk_costs_nothing_that_was_written(small_disk: Path, writer: Writer, segment_bytes: int) -> None:
    """Appends fail while it is full, however often; with room again they go on, nothing lost and nothing twice."""
    folder = layout.writer_folder(small_disk, writer.run, writer.id)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(64 * 1024))
    journal, tail = Journal(folder, writer, segment_bytes=segment_bytes), Tail(folder)
    failed = fill(journal, 0)
    expected = [number for number in range(failed) for _ in range(3)]
    assert numbers(folder) == expected
    files = len(list(folder.iterdir()))
    for _ in range(30):
        with pytest.raises(OSError, match="No space left"):
            journal.append([pack(failed)] * 3)
    assert len(list(folder.iterdir())) <= files + 1
    assert numbers(folder) == expected
    ballast.unlink()
    journal.append([pack(failed)] * 3)
    again = fill(journal, failed + 1)
    journal.close()
    expected += [number for number in range(failed, again) for _ in range(3)]
    assert numbers(folder) == expected
    assert [record.time for batch in tail.read_all() for record in batch.records] == expected
    assert tail.damaged == 0


def test_a_full_disk_can_be_thinned(small_disk: Path, writer: Writer) -> None:
    """Where there is room for one thinned segment the quota makes more; a temporary file never stays."""
    folder = layout.writer_folder(small_disk, writer.run, writer.id)
    journal = Journal(folder, writer, segment_bytes=20_000)
    fill(journal, 0)
    before = len(numbers(folder))
    dropped = quota.enforce(folder, 60_000, journal.current())
    assert before == len(numbers(folder)) + dropped["log"]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 60_000
    journal.append([pack(1)] * 3)
    journal.close()


def test_a_read_only_disk_raises_until_it_can_be_written(small_disk: Path, writer: Writer) -> None:
    """Appends fail, reading works, and when the disk is writable again the next append succeeds."""
    folder = layout.writer_folder(small_disk, writer.run, writer.id)
    journal = Journal(folder, writer)
    journal.append([pack(0)])
    journal.close()
    mount("-o", "remount,ro", str(small_disk))
    for _ in range(3):
        with pytest.raises(OSError, match="Read-only") as raised:
            journal.append([pack(1)])
        assert raised.value.errno == errno.EROFS
    other = Journal(folder.with_name("r9-a1-host-1-ab"), writer)
    with pytest.raises(OSError, match="Read-only"):
        other.append([pack(1)])
    assert numbers(folder) == [0]
    assert quota.enforce(folder, 0, None) == {}
    mount("-o", "remount,rw", str(small_disk))
    journal.append([pack(1)])
    journal.close()
    assert numbers(folder) == [0, 1]


def test_cursors_on_a_full_disk_stay_as_they_were(small_disk: Path) -> None:
    """A save that fails raises and leaves the old positions and no other file."""
    cursors = Cursors(small_disk, "sink")
    cursors.set("w", Position(seq=5))
    cursors.save()
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(bytes(1024 * 1024))
    for number in range(5):
        cursors.set(f"w{number}" * 300, Position(seq=9))
    with pytest.raises(OSError, match="No space left"):
        cursors.save()
    assert [path.name for path in (small_disk / "cursors").iterdir()] == ["sink.json"]
    assert Cursors(small_disk, "sink").get("w") == Position(seq=5)
