"""Append: numbered, rotated, and whole or not at all whatever the disk does."""

import errno
import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from stepscope.journal import layout, segments
from stepscope.journal.segments import Journal, Tail
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Log
from stepscope.wire import frames

OpenJournal = Callable[..., Journal]


def pack(number: int, text: str = "") -> bytes:
    """Pack a log whose time is a number to be known by."""
    return msgspec.msgpack.encode(Log(number, None, None, None, None, 9, text))


def written(folder: Path) -> list[tuple[int, list[int]]]:
    """Read back each batch's number and the times of its records."""
    return [(batch.seq, [record.time for record in batch.records]) for batch in segments.read_writer(folder)]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: a write that would is cut short, the next one fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_batches_are_numbered_from_zero(folder: Path, open_journal: OpenJournal) -> None:
    """Each append is one batch with the next number; what it returns is the bytes it took."""
    journal = open_journal()
    sizes = [journal.append([pack(1), pack(2)]), journal.append([]), journal.append([pack(3)])]
    assert written(folder) == [(0, [1, 2]), (1, []), (2, [3])]
    assert journal.seq == 3
    head = len(frames.pack_head(journal.writer))
    (segment,) = layout.list_segments(folder)
    assert segment.stat().st_size == head + sum(sizes)


def test_a_full_segment_is_followed_by_the_next(folder: Path, open_journal: OpenJournal) -> None:
    """Segments end at the first batch past their size; every one begins with the writer's head."""
    journal = open_journal(segment_bytes=1000)
    for number in range(50):
        journal.append([pack(number, "x" * 100)])
    segments = layout.list_segments(folder)
    assert len(segments) > 5
    assert journal.current() == segments[-1]
    for path in segments:
        first = next(frames.scan(path.read_bytes()))
        assert isinstance(first, frames.Frame)
        assert frames.unpack_head(first.payload) == journal.writer
        assert path.stat().st_size < 1000 + 200
    assert written(folder) == [(number, [number]) for number in range(50)]


def test_nothing_is_made_before_the_first_append(folder: Path, open_journal: OpenJournal) -> None:
    """Opening a journal touches nothing; closing it ends the segment and a later append opens another."""
    journal = open_journal()
    journal.close()
    assert journal.current() is None
    assert not folder.exists()
    journal.append([pack(1)])
    journal.close()
    assert journal.current() is None
    journal.append([pack(2)])
    assert len(layout.list_segments(folder)) == 2
    assert written(folder) == [(0, [1]), (1, [2])]


def test_only_the_owner_can_read_a_journal(folder: Path, open_journal: OpenJournal) -> None:
    """The folder and its segments are closed to others."""
    open_journal().append([pack(1)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(layout.list_segments(folder)[0].stat().st_mode) == 0o600


def test_a_vanished_folder_is_made_again(folder: Path, open_journal: OpenJournal) -> None:
    """The next append re-creates it; numbers and segments go on, so a reader misses nothing that is there."""
    journal = open_journal(segment_bytes=1)
    tail = Tail(folder)
    for number in range(4):
        journal.append([pack(number)])
    assert [batch.seq for batch in tail.read_all()] == [0, 1, 2, 3]
    shutil.rmtree(folder.parents[1])
    assert tail.read() == []
    journal.append([pack(4)])
    assert layout.list_segments(folder) == [layout.segment_path(folder, 4)]
    assert [batch.seq for batch in tail.read_all()] == [4]


def test_a_deleted_segment_is_not_written_into(folder: Path, open_journal: OpenJournal) -> None:
    """When the open segment is removed the next append opens another, under a name not used before."""
    journal = open_journal()
    journal.append([pack(1)])
    tail = Tail(folder)
    assert [batch.seq for batch in tail.read()] == [0]
    os.unlink(journal.current() or "")
    journal.append([pack(2)])
    assert journal.current() == layout.segment_path(folder, 1)
    assert [batch.seq for batch in tail.read()] == [1]


def test_a_segment_cut_by_another_is_not_continued(folder: Path, open_journal: OpenJournal) -> None:
    """Behind a torn frame nothing is appended: the next batch opens the next segment."""
    journal = open_journal()
    for number in range(3):
        journal.append([pack(number)])
    path = journal.current()
    assert path is not None
    os.truncate(path, path.stat().st_size - 1)
    journal.append([pack(3)])
    assert len(layout.list_segments(folder)) == 2
    assert written(folder) == [(0, [0]), (1, [1]), (3, [3])]


def test_a_folder_with_segments_is_continued(folder: Path, open_journal: OpenJournal) -> None:
    """A second journal in the same folder continues the numbering, also after empty and torn segments."""
    first = open_journal(segment_bytes=1)
    for number in range(3):
        first.append([pack(number)])
    first.close()
    last = layout.list_segments(folder)[-1]
    os.truncate(last, last.stat().st_size - 1)
    layout.segment_path(folder, 5).touch()
    second = open_journal()
    second.append([pack(9)])
    assert second.current() == layout.segment_path(folder, 6)
    assert written(folder) == [(0, [0]), (1, [1]), (2, [9])]


def test_a_write_cut_short_anywhere_is_taken_back(folder: Path, open_journal: OpenJournal) -> None:
    """Whatever part of a frame the disk took, the append fails whole and the segment is as before."""
    journal = open_journal()
    journal.append([pack(0)])
    path = journal.current()
    assert path is not None
    size = len(frames.pack_batch(0, [pack(1)]))
    expected = [(0, [0])]
    for room in range(size):
        before = path.read_bytes()
        with largest_file(len(before) + room), pytest.raises(OSError, match="too large") as raised:
            journal.append([pack(1)])
        assert raised.value.errno == errno.EFBIG
        assert path.read_bytes() == before
        seq = journal.seq
        journal.append([pack(room)])
        expected.append((seq, [room]))
    assert layout.list_segments(folder) == [path]
    assert written(folder) == expected


def test_a_segment_without_room_for_its_head_is_removed(folder: Path, open_journal: OpenJournal) -> None:
    """Where not even the head can be written nothing is left behind, and no number is lost."""
    journal = open_journal()
    for room in (0, 1, 40):
        with largest_file(room), pytest.raises(OSError, match="too large"):
            journal.append([pack(1)])
        assert list(folder.iterdir()) == []
    assert journal.current() is None
    journal.append([pack(1)])
    assert written(folder) == [(0, [1])]


def test_failures_leave_one_segment_however_many_they_are(folder: Path, open_journal: OpenJournal) -> None:
    """A disk with room for a head and not for a batch is not filled with heads, one per try."""
    journal = open_journal(segment_bytes=1)
    journal.append([pack(0)])
    for _ in range(20):
        with largest_file(1000), pytest.raises(OSError, match="too large"):
            journal.append([pack(1, "x" * 2000)])
    assert len(layout.list_segments(folder)) == 2
    journal.append([pack(2)])
    assert [times for _, times in written(folder)] == [[0], [2]]


def test_a_torn_tail_that_cannot_be_cut_off_ends_its_segment(folder: Path, open_journal: OpenJournal) -> None:
    """When the file can only be appended to, the torn frame stays, is seen as damage, and costs nothing else."""
    journal = open_journal()
    journal.append([pack(0)])
    path = journal.current()
    assert path is not None
    done = subprocess.run(["chattr", "+a", path], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"chattr +a: {done.stderr.strip()}")
    try:
        with largest_file(path.stat().st_size + 20), pytest.raises(OSError, match="too large"):
            journal.append([pack(1)])
    finally:
        subprocess.run(["chattr", "-a", path], check=True)
    journal.append([pack(2)])
    tail = Tail(folder)
    assert [record.time for batch in tail.read_all() for record in batch.records] == [0, 2]
    assert tail.damaged == 1


def test_a_batch_seen_before_its_fsync_failed_is_not_numbered_twice(
    folder: Path, open_journal: OpenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that saw the batch reads the retry too: another number, for it may hold more."""
    journal = open_journal(fsync=True)
    journal.append([pack(0)])
    tail = Tail(folder)
    seen: list[int] = []

    def fail(fd: int) -> None:
        seen.extend(batch.seq for batch in tail.read())
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="the disk is gone"):
            journal.append([pack(1)])
    assert seen == [0, 1]
    assert tail.read() == []
    journal.append([pack(1), pack(2)])
    assert [(batch.seq, len(batch.records)) for batch in tail.read()] == [(2, 2)]
    assert written(folder) == [(0, [0]), (2, [1, 2])]


def test_a_batch_too_large_to_be_read_is_refused(
    folder: Path, open_journal: OpenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing an oversized batch raises ValueError; later batches are written."""
    journal = open_journal()
    journal.append([pack(0)])
    monkeypatch.setattr(frames, "LIMIT", 500)
    with pytest.raises(ValueError, match="no more than 500"):
        journal.append([pack(1, "x" * 500)])
    journal.append([pack(2)])
    assert written(folder) == [(0, [0]), (1, [2])]


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores permission bits; test_full_disk has the mount")
def test_a_folder_that_may_not_be_written_raises(folder: Path, open_journal: OpenJournal) -> None:
    """No permission is an OSError, and the append after it is allowed again succeeds."""
    folder.parent.mkdir(parents=True)
    folder.parent.chmod(0o500)
    journal = open_journal()
    with pytest.raises(PermissionError):
        journal.append([pack(0)])
    folder.parent.chmod(0o700)
    journal.append([pack(0)])
    assert written(folder) == [(0, [0])]


def test_a_file_in_place_of_the_folder_raises(folder: Path, open_journal: OpenJournal) -> None:
    """A file in place of the folder is an OSError until it is removed."""
    folder.parent.mkdir(parents=True)
    folder.touch()
    journal = open_journal()
    with pytest.raises(FileExistsError):
        journal.append([msgspec.msgpack.encode(Event(1, None, None, None, None, 9, "e"))])
    folder.unlink()
    journal.append([pack(0)])
    assert written(folder) == [(0, [0])]


def test_a_descriptor_that_became_another_file_is_left_alone(
    folder: Path, tmp_path: Path, open_journal: OpenJournal
) -> None:
    """After a program closed all descriptors and opened its own files, none of them gets a byte or is closed."""
    journal = open_journal()
    journal.append([pack(1)])
    first = journal._fd
    other = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
    os.dup2(other, first)
    journal.append([pack(2)])
    journal.close()
    assert (tmp_path / "mine").read_bytes() == b""
    assert os.path.samestat(os.fstat(first), os.fstat(other))
    assert written(folder) == [(0, [1]), (1, [2])]
    assert journal.damages == 0
    os.close(first)
    os.close(other)


def test_a_closed_descriptor_costs_nothing(folder: Path, open_journal: OpenJournal) -> None:
    """A batch after the descriptor was closed goes into the next segment, without an error."""
    journal = open_journal()
    journal.append([pack(1)])
    os.close(journal._fd)
    journal.append([pack(2)])
    assert written(folder) == [(0, [1]), (1, [2])]


def test_each_segment_is_announced_before_its_first_batch(folder: Path, writer: Writer) -> None:
    """`on_segment` is called once the segment exists, and before a batch is in it."""
    seen: list[list[tuple[int, list[int]]]] = []
    journal = Journal(folder, writer, segment_bytes=1, on_segment=lambda: seen.append(written(folder)))
    journal.append([pack(1)])
    journal.append([pack(2)])
    journal.close()
    assert seen == [[], [(0, [1])]]
