"""A writer in another process: readers keep up with it, and its death costs nothing it had written."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.journal import layout
from stepscope.journal.segments import Tail, read_writer
from stepscope.model.records import Metric

WRITE = """
import sys, msgspec
from pathlib import Path
from stepscope.journal import quota
from stepscope.journal.segments import Journal
from stepscope.model.records import Log, Metric
from stepscope.model.ports import Writer

folder, batches, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
journal = Journal(folder, Writer(id=folder.name, run="run", project="tests"), segment_bytes=300_000)
ballast = msgspec.msgpack.encode(Log(0, None, None, None, None, 9, "x" * 20_000))
segment = None
for seq in range(batches):
    metric = msgspec.msgpack.encode(Metric(seq, seq, None, None, {"seq": float("nan") if seq % 2 else 0.0}))
    journal.append([metric] + [ballast] * (seq % 7))
    print(seq, flush=True)
    if limit and journal.current() != segment:
        segment = journal.current()
        quota.enforce(folder, limit, segment)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the other process writes."""
    return layout.writer_folder(tmp_path, "run", "r0-a1-host-1-ab")


def start(folder: Path, batches: int, limit: int = 0) -> "subprocess.Popen[str]":
    """Start a process that appends so many batches and prints the number of each when it is written."""
    command = [sys.executable, "-c", WRITE, str(folder), str(batches), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_readers_keep_up_with_a_living_writer(folder: Path) -> None:
    """Reading all the while, in large parts and in small: every batch once and in order, no damage seen."""
    with start(folder, 300) as process:
        tails = [Tail(folder), Tail(folder)]
        found: list[list[int]] = [[], []]
        assert process.stdout is not None
        for _ in process.stdout:
            for tail, seen, size in zip(tails, found, (4_000_000, 10_000), strict=True):
                seen += [batch.seq for batch in tail.read(size)]
    assert process.returncode == 0
    for tail, seen in zip(tails, found, strict=True):
        seen += [batch.seq for batch in tail.read_all()]
        assert seen == list(range(300))
        assert (tail.damaged, tail.unreadable) == (0, 0)


def test_a_reader_of_a_journal_that_is_thinned_meanwhile_gets_what_stays(folder: Path) -> None:
    """While segments are rewritten and removed under it: nothing twice, no damage, and all that is left at the end."""
    with start(folder, 300, limit=1_000_000) as process:
        tail = Tail(folder)
        found: list[int] = []
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) % 3 == 0:
                found += [batch.seq for batch in tail.read(50_000)]
    found += [batch.seq for batch in tail.read_all()]
    left = [batch.seq for batch in read_writer(folder)]
    assert found == sorted(set(found))
    assert set(left) <= set(found)
    assert set(range(1, 300, 2)) <= set(found)  # a metric that is not finite is never thinned
    assert tail.damaged == 0


@pytest.mark.parametrize("after", [1, 50, 333])
def test_a_killed_writer_has_lost_nothing_it_had_written(folder: Path, after: int) -> None:
    """SIGKILL at any moment: every batch whose append had returned is read, and the last may be one more."""
    with start(folder, 100_000) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                process.send_signal(signal.SIGKILL)
                break
        reported = [int(line), *map(int, process.stdout.read().split())][-1]
    tail = Tail(folder)
    found = list(tail.read_all())
    assert [batch.seq for batch in found] == list(range(len(found)))
    assert len(found) in (reported + 1, reported + 2)
    assert all(isinstance(batch.records[0], Metric) for batch in found)
    assert tail.damaged == 0
