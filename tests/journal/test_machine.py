"""Anything may happen to a journal between two reads: no batch comes twice, and what is there comes."""

import os
import shutil
import tempfile
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stepscope.journal import layout, quota
from stepscope.journal.following import Cursors
from stepscope.journal.segments import Journal, Tail
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.wire import frames

WRITER = Writer(id="r0-a1-host-1-ab", run="run", project="tests")
NAN = float("nan")


def record(kind: int, number: int) -> Record:
    """Make a record of any kind with a number to be known by."""
    if kind < 2:
        return Metric(number, number, None, None, {"loss": NAN if kind else 1.0})
    if kind == 2:
        return Span(number, 1, None, None, bytes(16), bytes(8), None, "span")
    if kind == 3:
        return Log(number, None, None, None, None, 9, "x" * (number % 50))
    if kind == 4:
        return Event(number, None, None, None, None, 9, "event")
    return Alert(number, None, None, None, None, 9, "alert")


class JournalMachine(RuleBasedStateMachine):
    """One writer, one reader, and everything else that touches the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="stepscope-machine-"))
        self.folder = layout.writer_folder(self.home, "run", WRITER.id)
        self.numbers = 0
        self.appended: dict[int, list[int]] = {}
        self.delivered: dict[int, list[int]] = {}

    @initialize(segment_bytes=st.sampled_from([1, 400, 2000, 100_000]))
    def open(self, segment_bytes: int) -> None:
        """Begin with an empty folder."""
        self.journal = Journal(self.folder, WRITER, segment_bytes=segment_bytes)
        self.tail = Tail(self.folder)

    def teardown(self) -> None:
        """Remove the folder."""
        self.journal.close()
        shutil.rmtree(self.home)

    def on_disk(self) -> dict[int, list[int]]:
        """Return the batches in the folder, by number, read without the reader under test."""
        found: dict[int, list[int]] = {}
        for path in layout.list_segments(self.folder):
            for each in frames.scan(path.read_bytes(), final=True):
                if isinstance(each, frames.Frame) and not frames.is_head(each.payload):
                    seq, records, bad = frames.unpack_batch(each.payload)
                    assert bad == 0
                    assert seq not in found
                    found[seq] = [record.time for record in records]
        return found

    @rule(kinds=st.lists(st.integers(0, 5), max_size=6))
    def append(self, kinds: list[int]) -> None:
        """Append a batch; it is on disk when the call returns."""
        records = [record(kind, self.numbers + place) for place, kind in enumerate(kinds)]
        self.numbers += len(kinds)
        self.journal.append([msgspec.msgpack.encode(each) for each in records])
        seq = self.journal.seq - 1
        assert seq not in self.appended
        self.appended[seq] = [each.time for each in records]
        assert self.on_disk()[seq] == self.appended[seq]

    @rule()
    def rotate(self) -> None:
        """End the open segment."""
        self.journal.close()

    @precondition(lambda self: not self.appended or max(self.appended) in self.on_disk())
    @rule(segment_bytes=st.sampled_from([1, 2000]))
    def restart(self, segment_bytes: int) -> None:
        """Go on with a new journal, which has only the folder to know the last number by."""
        self.journal.close()
        self.journal = Journal(self.folder, WRITER, segment_bytes=segment_bytes)
        self.append([3])

    @rule(limit=st.integers(1, 3000))
    def read_some(self, limit: int) -> None:
        """Read a part."""
        for batch in self.tail.read(limit):
            assert batch.seq not in self.delivered, "a batch came twice"
            times = [record.time for record in batch.records]
            assert set(times) <= set(self.appended[batch.seq])
            assert batch.writer == WRITER
            self.delivered[batch.seq] = times

    @rule()
    def read_everything(self) -> None:
        """Read to the end: all that is on disk has been delivered."""
        before = -1
        while before != len(self.delivered):
            before = len(self.delivered)
            self.read_some(100_000)
        assert set(self.on_disk()) <= set(self.delivered)

    @rule()
    def reopen(self) -> None:
        """Go on with another tail, from the position as a cursors' file keeps it."""
        cursors = Cursors(self.home, "sink")
        cursors.set("writer", self.tail.position)
        cursors.save()
        self.tail = Tail(self.folder, Cursors(self.home, "sink").get("writer"))

    @precondition(lambda self: bool(layout.list_segments(self.folder)))
    @rule(cut=st.integers(1, 400))
    def truncate_tail(self, cut: int) -> None:
        """Cut bytes off the newest segment, as a crash of the machine would."""
        path = layout.list_segments(self.folder)[-1]
        os.truncate(path, max(path.stat().st_size - cut, 0))

    @rule(part=st.floats(0, 1))
    def thin(self, part: float) -> None:
        """Thin under the quota: what is gone is counted, to the record."""
        before = self.on_disk()
        size = sum(path.stat().st_size for path in layout.list_segments(self.folder))
        dropped = quota.enforce(self.folder, int(size * part), self.journal.current(), pause=lambda _: None)
        after = self.on_disk()
        assert sum(map(len, before.values())) == sum(map(len, after.values())) + dropped.total()
        assert set(dropped) <= {"metric", "span", "log"}

    @precondition(lambda self: bool(layout.list_segments(self.folder)))
    @rule()
    def delete_the_oldest(self) -> None:
        """Delete the oldest segment, even the one being written."""
        layout.list_segments(self.folder)[0].unlink()

    @rule()
    def vanish(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @invariant()
    def nothing_is_left_over(self) -> None:
        """No file but segments stays in the folder."""
        if self.folder.exists():
            assert len(layout.list_segments(self.folder)) == len(list(self.folder.iterdir()))


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=40, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
