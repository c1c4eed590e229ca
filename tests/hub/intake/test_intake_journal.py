"""The hub's own journal: group commit, bounds, failures of the disk; and batches through it."""

import shutil
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from msgspec import structs

from stepscope.hub.home import HubHome
from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import (
    MAX_BYTES,
    Intake,
    IntakeBatch,
    SequenceNumbers,
    pack,
    pack_parts,
    pack_whole,
)
from stepscope.hub.intake.store_pump import IntakeReader
from stepscope.journal.following import Cursors
from stepscope.model.errors import Retry
from stepscope.model.ports import Writer
from stepscope.model.records import Log, Metric, Record

WRITER = Writer(id="w", run="r", project="p")


def packed_batch(seq: int, value: float = 1.0) -> bytes:
    """One packed batch of one metric."""
    packed = pack(IntakeBatch("test", WRITER, seq, [Metric(1, seq, None, None, {"loss": value})]))
    assert packed is not None
    return packed


def log(body: object) -> Record:
    """A log record."""
    return Log(1, None, None, None, None, 9, body)


def intake_reader(home: Path) -> IntakeReader:
    """The reader of the journal in a home."""
    return IntakeReader(home / "journal" / "intake", Cursors(home, "store"), Counters())


def test_groups(tmp_path: Path) -> None:
    """Requests from many threads are all safe, with fewer fsyncs, and come out as they went in."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    futures: list[Future[None]] = []
    lock = threading.Lock()

    def send(first: int) -> None:
        for seq in range(first, first + 20):
            future = intake.submit([packed_batch(seq)])
            with lock:
                futures.append(future)

    threads = [threading.Thread(target=send, args=(20 * index,)) for index in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for future in futures:
        future.result(10)
    intake.close()
    assert intake.groups < 400
    source = intake_reader(tmp_path)
    found = []
    while items := source.read():
        found += items
    assert sorted(item.batch.seq for item in found) == list(range(400))
    assert {item.receiver for item in found} == {"test"}


def test_resumes(tmp_path: Path) -> None:
    """A reader continues at the settled position, and stored segments except the newest are removed."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER, most_bytes=80_000)
    cursors = Cursors(tmp_path, "store")
    source = IntakeReader(intake.folder, cursors, Counters(), intake.measure)
    seen = []
    for seq in range(500):
        intake.submit([packed_batch(seq)]).result(10)
        if seq % 10 == 9:
            assert source.read()
            source.rewind()
            seen += [item.batch.seq for item in source.read()]
            source.settle()
            cursors.save()
            cursors = Cursors(tmp_path, "store")
            source = IntakeReader(intake.folder, cursors, Counters(), intake.measure)
    assert seen == list(range(500))
    assert len(list(intake.folder.iterdir())) <= 2
    assert source.bytes_behind() == 0
    intake.close()


def test_bound(tmp_path: Path) -> None:
    """Beyond its bound the journal takes nothing, and takes again when there is room."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER, most_bytes=20_000)
    taken = 0
    while (refusal := intake.submit([packed_batch(taken)]).exception(10)) is None:
        taken += 1
    assert 0 < taken < 999
    assert isinstance(refusal, Retry)
    assert refusal.after
    source = IntakeReader(intake.folder, Cursors(tmp_path, "store"), Counters(), intake.measure)
    while source.read():
        source.settle()
    intake.submit([packed_batch(taken)]).result(10)
    intake.close()


def test_broken_disk(tmp_path: Path) -> None:
    """Whatever the disk does, the sender gets Retry-After, and the next try may work."""
    (tmp_path / "journal").write_text("in the way")
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    with pytest.raises(Retry, match="cannot be written"):
        intake.submit([packed_batch(0)]).result(10)
    (tmp_path / "journal").unlink()
    intake.submit([packed_batch(1)]).result(10)
    intake.close()
    assert [item.batch.seq for item in intake_reader(tmp_path).read()] == [1]


def test_folder_that_is_not_ours(tmp_path: Path) -> None:
    """While the folder is replaced nothing is acknowledged or created; afterwards the journal continues."""
    place = HubHome(tmp_path / "home")
    intake = Intake(place.journal, WRITER, check=place.check)
    intake.submit([packed_batch(0)]).result(10)
    place.home.rename(tmp_path / "moved")
    with pytest.raises(Retry, match="was deleted, moved or replaced under the hub"):
        intake.submit([packed_batch(1)]).result(10)
    assert not place.home.exists()
    (tmp_path / "moved").rename(place.home)
    intake.submit([packed_batch(2)]).result(10)
    intake.close()
    place.close()
    assert [item.batch.seq for item in intake_reader(place.folder).read()] == [0, 2]


def test_folder_that_goes_while_it_is_written(tmp_path: Path) -> None:
    """What the journal wrote into a folder made anew is not acknowledged."""
    place = HubHome(tmp_path / "home")
    looks: list[int] = []

    def check() -> None:
        place.check()
        if not looks:
            shutil.rmtree(place.home)
        looks.append(1)

    intake = Intake(place.journal, WRITER, check=check)
    with pytest.raises(Retry, match="was deleted"):
        intake.submit([packed_batch(0)]).result(10)
    intake.close()
    place.close()


def test_no_space(tmp_path: Path) -> None:
    """A disk that is nearly full is left alone."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER, spare_bytes=2**62)
    with pytest.raises(Retry, match="full"):
        intake.submit([packed_batch(0)]).result(10)
    intake.close()


def test_closed(tmp_path: Path) -> None:
    """A closed intake has written what it took and takes nothing more."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    futures = [intake.submit([packed_batch(seq)]) for seq in range(50)]
    intake.close()
    for future in futures:
        future.result(0)
    with pytest.raises(Retry):
        intake.submit([packed_batch(51)]).result(0)


def test_numbers() -> None:
    """SequenceNumbers rise for each writer and are never given twice, also by a hub whose clock was set back."""
    lives = [SequenceNumbers(lambda now=now: now) for now in (10**18, 10**18 + 10**7, 10**18 - 10**10)]
    given = [numbers.take("w") for numbers in lives for _ in range(1000)]
    assert len(set(given)) == 3000
    assert given[:1000] == list(range(given[0], given[0] + 1000))
    assert max(given) < 2**63


def test_large_parcels() -> None:
    """A large request is parted; a record that cannot be packed is counted and the others are kept."""
    records = [log("x" * 1_000_000) for _ in range(40)]
    late = structs.replace(log("late"), time=2**70)
    packed, lost = pack_parts("test", WRITER, records, SequenceNumbers())
    assert lost == 0
    assert len(packed) > 2
    assert all(len(part) <= MAX_BYTES for part in packed)
    packed, lost = pack_parts("test", WRITER, [log("a"), late, log("b"), late], SequenceNumbers())
    assert lost == 2
    whole, lost = pack_whole(IntakeBatch("test", WRITER, 7, [log("a"), late]))
    assert (len(whole) > 0, lost) == (True, 1)


def test_quiet_when_idle(tmp_path: Path) -> None:
    """An idle intake burns nothing."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    before = time.process_time()
    threading.Event().wait(0.3)
    assert time.process_time() - before < 0.1
    intake.close()
