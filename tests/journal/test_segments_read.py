"""Read: from anywhere, while it is written, over damage; nothing twice and nothing left out."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stepscope.journal import layout, quota
from stepscope.journal.following import Cursors
from stepscope.journal.segments import READ_BYTES, Journal, Position, RunReader, Tail, find_writer, read_writer
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log, Metric
from stepscope.wire import frames

OpenJournal = Callable[..., Journal]


def log(number: int, text: str = "") -> bytes:
    """Pack a log whose time is a number to be known by."""
    return msgspec.msgpack.encode(Log(number, None, None, None, None, 9, text))


def metric(number: int) -> bytes:
    """Pack a metric whose step is a number to be known by."""
    return msgspec.msgpack.encode(Metric(number, number, None, "trainer", {"loss": 0.5}))


def seqs(batches: list[Batch]) -> list[int]:
    """Return the numbers of batches."""
    return [batch.seq for batch in batches]


@pytest.fixture
def small(folder: Path, open_journal: OpenJournal) -> list[Batch]:
    """Three segments of two batches each, closed, and what is in them."""
    journal = open_journal()
    for number in range(6):
        journal.append([log(number), log(number + 100, "two")])
        if number % 2:
            journal.close()
    return list(read_writer(folder))


def test_everything_comes_back_in_order(folder: Path, small: list[Batch], writer: Writer) -> None:
    """All batches of all segments, each with the writer of its head."""
    assert seqs(small) == [0, 1, 2, 3, 4, 5]
    assert {batch.writer.id for batch in small} == {writer.id}
    assert [record.time for batch in small for record in batch.records][:4] == [0, 100, 1, 101]
    assert list(read_writer(folder)) == small


def test_a_position_can_be_taken_up_anywhere(folder: Path, small: list[Batch], writer: Writer) -> None:
    """A new tail continues after the last batch of the old one, also from a saved cursor."""
    tail = Tail(folder)
    for done in range(len(small) + 1):
        cursors = Cursors(folder.parents[2], "sink")
        cursors.set("w", tail.position)
        cursors.save()
        second = Tail(folder, Cursors(folder.parents[2], "sink").get("w"))
        rest = list(second.read_all())
        assert rest == small[done:]
        assert all(batch.writer == writer for batch in rest)
        assert second.damaged == 0
        if done < len(small):
            assert tail.read(1) == [small[done]]
    assert tail.read(1) == []


def test_a_tail_reads_what_is_appended_between_reads(folder: Path, open_journal: OpenJournal) -> None:
    """Appends and reads in turn, over rotations: each read returns what came since the last."""
    journal, tail, other = open_journal(segment_bytes=300), Tail(folder), Tail(folder)
    assert tail.read() == []
    for number in range(0, 60, 2):
        journal.append([log(number)])
        journal.append([log(number + 1)])
        assert seqs(list(tail.read_all())) == [number, number + 1]
        assert tail.read() == []
    assert len(layout.list_segments(folder)) > 5
    assert seqs(list(other.read_all())) == list(range(60))


def test_a_limit_bounds_a_read_and_never_stops_it(folder: Path, open_journal: OpenJournal) -> None:
    """Any limit, also below one frame, gives all batches; a small one gives few at a time."""
    journal = open_journal(segment_bytes=3000)
    for number in range(40):
        journal.append([log(number, "x" * (number * 10))])
    everything = list(read_writer(folder))
    for limit in (1, 7, 100, 1000, 2999, 3000, 10_000):
        tail, found = Tail(folder), []
        while batches := tail.read(limit):
            assert sum(len(str(batch)) for batch in batches) < 20 * limit + 20_000
            found += batches
        assert found == everything


def test_a_frame_larger_than_a_read_comes_whole(folder: Path, open_journal: OpenJournal) -> None:
    """A batch of more bytes than one read takes is read, and so are its neighbours."""
    journal = open_journal()
    journal.append([log(0)])
    journal.append([log(1, "x" * (2 * READ_BYTES + 5))])
    journal.append([log(2)])
    tail = Tail(folder)
    found = list(tail.read_all())
    assert seqs(found) == [0, 1, 2]
    assert isinstance(found[1].records[0], Log)
    assert len(found[1].records[0].body) == 2 * READ_BYTES + 5
    assert tail.damaged == 0


def test_a_cut_at_every_byte_leaves_the_batches_before_it(folder: Path, small: list[Batch]) -> None:
    """A journal that ends anywhere yields its whole batches; the torn one counts once another segment follows."""
    for path in layout.list_segments(folder)[1:]:
        path.unlink()
    (path,) = layout.list_segments(folder)
    data = path.read_bytes()
    ends = [found.end for found in frames.scan(data)]
    following = layout.segment_path(folder, 1)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = [batch for batch, end in zip(small, ends[1:], strict=False) if end <= cut]
        live = Tail(folder)
        assert [batch.records for batch in live.read_all()] == [batch.records for batch in whole]
        assert live.damaged == 0
        following.touch()
        ended = Tail(folder)
        assert seqs(list(ended.read_all())) == seqs(whole)
        assert ended.damaged == (0 if cut in (0, *ends) else 1)
        following.unlink()


def test_every_flipped_bit_costs_at_most_one_batch(folder: Path, small: list[Batch]) -> None:
    """Flip each bit of a closed segment: one batch, or only the head, is gone and counted; the others are the same."""
    path = layout.list_segments(folder)[0]
    data = path.read_bytes()
    starts = [found.start for found in frames.scan(data)]
    with open(path, "r+b", buffering=0) as file:
        for bit in range(len(data) * 8):
            os.pwrite(file.fileno(), flipped(data, bit), 0)
            hit = sum(start * 8 <= bit for start in starts) - 2
            tail = Tail(folder)
            assert list(tail.read_all()) == [batch for batch in small if batch.seq != hit]
            assert (tail.damaged, tail.unreadable) == (1, 0)


def test_a_flipped_bit_in_a_large_live_journal_costs_at_most_one_batch(folder: Path, open_journal: OpenJournal) -> None:
    """The same for bits of a large segment that is still written, read in small parts."""
    journal = open_journal()
    for number in range(200):
        journal.append([log(number, "x" * 997)] * 10)
    path = journal.current()
    assert path is not None
    data = path.read_bytes()
    chance = random.Random(7)
    for _ in range(40):
        path.write_bytes(flipped(data, chance.randrange(len(data) * 8)))
        tail, found = Tail(folder), set()
        while batches := tail.read(100_000):
            found.update(seqs(batches))
        lost = set(range(200)) - found
        assert len(lost) <= 1
        assert tail.damaged == (0 if lost == {199} else 1)


def flipped(data: bytes, bit: int) -> bytes:
    """Flip one bit."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_damaged_head_is_replaced_by_another_or_by_the_folders_name(folder: Path, small: list[Batch]) -> None:
    """Who writes is known from any readable head, and without one the folder's name tells the rank and attempt."""
    paths = layout.list_segments(folder)
    for path in paths[:2]:
        path.write_bytes(flipped(path.read_bytes(), 300))
    assert list(read_writer(folder)) == small
    paths[2].write_bytes(flipped(paths[2].read_bytes(), 300))
    found = list(read_writer(folder))
    assert [batch.records for batch in found] == [batch.records for batch in small]
    known = Writer(id=folder.name, run="run-1", project="", rank=1, attempt=2, host="host", pid=7)
    assert {batch.writer.id: batch.writer for batch in found} == {folder.name: known}
    assert find_writer(folder / "strange") == Writer(id="strange", run=folder.name, project="")


def test_a_head_of_any_size_is_found(folder: Path, writer: Writer) -> None:
    """A writer with a large resource is known to a tail that starts behind its head."""
    large = msgspec.structs.replace(writer, resource={"text": "x" * 200_000})
    journal = Journal(folder, large)
    journal.append([log(0)])
    tail = Tail(folder)
    tail.read()
    journal.append([log(1)])
    journal.close()
    (batch,) = Tail(folder, tail.position).read()
    assert batch.writer == large


def test_empty_and_headless_segments_are_passed_over(folder: Path, small: list[Batch], writer: Writer) -> None:
    """Empty segments, segments with only a header, and garbage are skipped."""
    layout.segment_path(folder, 3).touch()
    layout.segment_path(folder, 4).write_bytes(frames.pack_head(writer))
    layout.segment_path(folder, 5).write_bytes(b"garbage")
    layout.segment_path(folder, 6).write_bytes(frames.pack_head(writer) + frames.pack_batch(9, [log(9)]))
    layout.segment_path(folder, 7).touch()
    tail = Tail(folder)
    assert seqs(list(tail.read_all())) == [*seqs(small), 9]
    assert tail.damaged == 1


def test_a_removed_segment_is_passed_over(folder: Path, small: list[Batch]) -> None:
    """What is deleted under a reader is missed; what follows is read."""
    paths = layout.list_segments(folder)
    tail = Tail(folder)
    assert seqs(tail.read(1)) == [0]
    paths[0].unlink()
    assert seqs(tail.read(1)) == [2]
    paths[1].unlink()
    assert seqs(list(tail.read_all())) == [4, 5]
    shutil.rmtree(folder)
    assert tail.read() == []


def test_a_segment_that_cannot_be_opened_is_waited_for(folder: Path, small: list[Batch]) -> None:
    """A temporary file system error skips nothing; only a missing segment is skipped."""
    path = layout.list_segments(folder)[0]
    kept = path.rename(path.with_suffix(".kept"))
    path.symlink_to(path)  # opening it fails with ELOOP
    tail = Tail(folder)
    assert tail.read() == []
    kept.rename(path)
    assert list(tail.read_all()) == small


@pytest.mark.parametrize("in_place", [True, False], ids=["same inode", "another inode"])
def test_a_segment_rewritten_under_a_reader_is_read_on_where_it_was(
    folder: Path, open_journal: OpenJournal, in_place: bool
) -> None:
    """After the quota rewrote a segment a reader continues after its last batch, without duplicates or gaps."""
    journal = open_journal()
    for number in range(0, 100, 2):
        journal.append([metric(number), log(number)])
        journal.append([msgspec.msgpack.encode(Event(number + 1, None, None, None, None, 9, "kept"))])
    path = journal.current()
    assert path is not None
    journal.close()
    tail = Tail(folder)
    read_before = [number for _ in range(20) for number in seqs(tail.read(1))]
    old = path.with_suffix(".old")
    old.hardlink_to(path)
    assert quota.enforce(folder, path.stat().st_size // 2, None).total() >= 50
    if in_place:  # as if the file system had given the old inode to the new file
        old.write_bytes(path.read_bytes())
        old.replace(path)
    there = {batch.seq for batch in read_writer(folder)}
    read_after = seqs(list(Tail(folder, tail.position).read_all()))
    assert read_after == seqs(list(tail.read_all())) == sorted(there - set(read_before))
    assert tail.damaged == 0


def test_a_batch_written_twice_is_returned_once(folder: Path, writer: Writer) -> None:
    """A repeated sequence number is skipped, within a read and across segments."""
    folder.mkdir(parents=True)
    head, first, second = frames.pack_head(writer), *(frames.pack_batch(n, [log(n)]) for n in range(2))
    layout.segment_path(folder, 0).write_bytes(head + first + first + second)
    layout.segment_path(folder, 1).write_bytes(head + first + second + frames.pack_batch(2, [log(2)]))
    assert seqs(list(read_writer(folder))) == [0, 1, 2]


def test_unreadable_records_are_counted_and_odd_frames_are_damage(folder: Path, writer: Writer) -> None:
    """Whole frames with something else in them cost what cannot be read, and raise nothing."""
    folder.mkdir(parents=True)
    deep = frames.pack_batch(3, [b"\x91" * 100_000 + b"\xc0"])
    parts = [
        frames.frame(b"\x92\x00\xc0"),  # a head of nobody
        frames.pack_batch(0, [log(0), msgspec.msgpack.encode((77, 1))]),
        frames.frame(b""),
        frames.frame(b"\x93\x02\x03"),
        deep,
        frames.pack_batch(4, [log(4)]),
    ]
    layout.segment_path(folder, 0).write_bytes(b"".join(parts))
    tail = Tail(folder)
    assert seqs(list(tail.read_all())) == [0, 4]
    assert (tail.unreadable, tail.damaged) == (1, 4)


def test_a_wrong_position_starts_over_at_its_segment(folder: Path, small: list[Batch]) -> None:
    """An offset that is no longer, or never was, the end of a frame costs a rereading and no batch."""
    for offset in (1, 5, 10_000):
        tail = Tail(folder, Position(segment=1, offset=offset, seq=3))
        assert list(tail.read_all()) == small[3:]
        assert tail.damaged == 0


def bytes_read() -> int:
    """Return the bytes this process has read from files so far."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError as error:
        pytest.skip(f"no count of bytes read: {error}")
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_a_tail_reads_each_byte_about_once(folder: Path, open_journal: OpenJournal) -> None:
    """A segment read in parts is not read again from its start, nor is a live one at each call."""
    journal = open_journal()
    for number in range(64):
        journal.append([log(number, "x" * 16_000)])
    path = journal.current()
    assert path is not None
    tail, before = Tail(folder), bytes_read()
    while tail.read(200_000):
        pass
    assert bytes_read() - before < 1.25 * path.stat().st_size
    before = bytes_read()
    assert [tail.read() for _ in range(10)] == [[]] * 10
    assert bytes_read() - before < 200_000


def test_a_run_is_read_on_by_attempt_and_rank(tmp_path: Path) -> None:
    """New batches of all writers come once, and those of a writer that starts later too."""
    reader = RunReader(tmp_path, "run")
    assert list(reader.read()) == []

    def write(rank: int, attempt: int, step: int) -> None:
        name = str(layout.WriterName(rank, attempt, "host", 7, "abc"))
        writer = Writer(id=name, run="run", project="p", rank=rank, attempt=attempt)
        journal = Journal(layout.writer_folder(tmp_path, "run", name), writer)
        journal.append([msgspec.msgpack.encode(Metric(step, step, None, None, {"a": 1.0}))])
        journal.close()

    def steps() -> list[int | None]:
        return [record.step for batch in reader.read() for record in batch.records if isinstance(record, Metric)]

    write(0, 2, 1)
    write(1, 1, 2)
    assert (steps(), steps()) == ([2, 1], [])
    write(0, 1, 3)
    write(0, 2, 4)
    assert sorted(filter(None, steps())) == [3, 4]
