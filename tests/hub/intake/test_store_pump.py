"""The pump between journals and store, with a store that rejects, fails and recovers."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stepscope import pump as pumps
from stepscope.hub.intake import store_pump
from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.store_pump import (
    MAX_BLAMED,
    MAX_TRIES,
    QUIET_SECONDS,
    GroupReader,
    Outcome,
    Readers,
    ReceivedBatch,
    Source,
    StorePump,
    StoreSink,
)
from stepscope.hub.store.engine import Damaged, EngineError
from stepscope.hub.threads import Topic
from stepscope.journal.following import Cursors
from stepscope.journal.quarantine import Quarantine
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log

WRITER = Writer(id="w", run="r", project="p")


class ListSource:
    """A source of numbered batches of two records."""

    def __init__(self, count: int) -> None:
        log = Log(1, None, None, None, None, 9, "x")
        self.items = [ReceivedBatch("test", Batch(WRITER, seq, [log, log])) for seq in range(count)]
        self.at = self.settled = self.rewound = 0

    def read(self, limit: int) -> list[ReceivedBatch]:
        """One batch at a time."""
        self.at += 1
        found = self.items[self.at - 1 : self.at]
        self.at = min(self.at, len(self.items))
        return found

    def settle(self) -> bool:
        """Note how far all is stored."""
        moved = self.settled != self.at
        self.settled = self.at
        return moved

    def rewind(self) -> None:
        """Go back to what is stored."""
        self.rewound += self.at != self.settled
        self.at = self.settled


class ScriptedStore:
    """A store with preset outcomes by batch number, which skips what it has."""

    def __init__(self, answer: Callable[[int], Outcome | Exception]) -> None:
        self.answer = answer
        self.taken: list[int] = []
        self.groups: list[int] = []

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Return an outcome for each batch, and keep stored ones; nothing on failure."""
        self.groups.append(len(batches))
        answers = [None if batch.seq in self.taken else self.answer(batch.seq) for batch in batches]
        outcomes: list[Outcome] = []
        for answer in answers:
            if answer is not None and not isinstance(answer, (Retry, Reject)):
                raise answer
            outcomes.append(answer)
        safe = [b.seq for b, o in zip(batches, outcomes, strict=True) if not isinstance(o, Retry)]
        self.taken += [seq for seq in safe if seq not in self.taken]
        return outcomes


class World:
    """A pump with five batches, and their outcomes."""

    def __init__(
        self,
        home: Path,
        answer: Callable[[int], Outcome | Exception],
        *others: Source,
        stored: Topic[Sequence[ReceivedBatch]] | None = None,
        **options: int,
    ):
        self.store, self.source, self.counters = ScriptedStore(answer), ListSource(5), Counters()
        self.quarantine = Quarantine(home, "store", **options)
        groups = GroupReader([self.source, *others], Cursors(home, "x"), self.counters)
        self.pumping = StorePump(
            StoreSink(self.store), groups, self.quarantine, self.counters, pace=0.01, stored=stored
        )
        self.heard: list[int] = []
        self.pumping.stored.subscribe(lambda items: self.heard.extend(item.batch.seq for item in items))

    def run(self, seconds: float = 300) -> "World":
        """Move all there is."""
        self.pumping.start()
        self.pumping.stop(seconds)
        return self

    def aside(self) -> list[tuple[int, int]]:
        """What is in quarantine: numbers of batches, and how many records of each."""
        return [(entry.batch.seq, len(entry.batch.records)) for entry in self.quarantine.entries()]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumps, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(pumps, "LONGEST_WAIT", 0.002)


def test_what_is_announced_is_measured(tmp_path: Path) -> None:
    """Whoever queues what was stored knows how much memory it takes."""
    sizes: list[int] = []
    world = World(tmp_path, lambda seq: None)
    world.pumping.stored.subscribe(lambda items: sizes.extend(item.bytes for item in items))
    world.run()
    assert len(sizes) == 5
    assert all(600 <= size <= 2000 for size in sizes)


def test_the_rate_needs_the_last_commits_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored before the time that it is about is forgotten."""
    monkeypatch.setattr(store_pump, "GROUP_BYTES", 1)
    world = World(tmp_path, lambda seq: None)
    world.pumping._rates.extend((time.monotonic() - 3600.0, 1000) for _ in range(5000))
    world.run()
    assert 1 <= len(world.pumping._rates) <= 5
    assert 0 < world.pumping.rate() < 1


def test_all_is_stored(tmp_path: Path) -> None:
    """What a source has goes to the store in one group, is counted, published and settled."""
    world = World(tmp_path, lambda seq: None).run()
    assert (world.store.taken, world.store.groups, world.source.settled) == ([0, 1, 2, 3, 4], [5], 5)
    assert (world.counters.total("stored", "test"), world.heard) == (10, [0, 1, 2, 3, 4])
    assert (world.pumping.problem, world.pumping.rate() > 0) == ("", True)


def test_retry(tmp_path: Path) -> None:
    """A batch the store does not take now is offered again until it does."""
    left = {2: 3}

    def answer(seq: int) -> Outcome:
        left[seq] = left.get(seq, 0) - 1
        return Retry("busy") if left[seq] >= 0 else None

    world = World(tmp_path, answer).run()
    assert (sorted(world.store.taken), world.source.settled) == ([0, 1, 2, 3, 4], 5)
    assert world.counters.total("retried", "store") == 15
    assert world.counters.total("stored", "test") == 10


def test_reject(tmp_path: Path) -> None:
    """Permanently rejected records are counted by reason and quarantined; the others are stored."""
    world = World(tmp_path, lambda seq: Reject("bad id", [0]) if seq == 1 else None).run()
    assert world.source.settled == 5
    assert (world.counters.total("stored", "test"), world.counters.total("rejected", "test")) == (9, 1)
    assert world.aside() == [(1, 1)]


def test_a_refusal_is_remembered_while_others_wait(tmp_path: Path) -> None:
    """A store that commits a group in parts reports a bad record once; it is still quarantined."""
    tries: list[int] = []

    def answer(seq: int) -> Outcome:
        tries.append(seq)
        return Reject("bad", [1]) if seq == 0 else Retry("busy") if tries.count(4) == 1 and seq == 4 else None

    world = World(tmp_path, answer).run()
    assert (sorted(world.store.taken), world.aside()) == ([0, 1, 2, 3, 4], [(0, 1)])
    assert (world.counters.total("stored", "test"), world.counters.total("rejected", "test")) == (9, 1)


def test_stumble(tmp_path: Path) -> None:
    """A batch on which the store fails is found and quarantined whole; the others are stored."""
    world = World(tmp_path, lambda seq: ZeroDivisionError() if seq == 3 else None).run()
    assert (sorted(world.store.taken), world.source.settled) == ([0, 1, 2, 4], 5)
    assert world.counters.total("rejected", "test") == 2
    assert world.aside() == [(3, 2)]


def test_an_engine_in_trouble_is_tried_again(tmp_path: Path) -> None:
    """Before any batch is blamed the group is offered several times."""
    left = [EngineError("a disk that comes and goes", 74)] * (MAX_TRIES - 1)
    world = World(tmp_path, lambda seq: left.pop() if left else None).run()
    assert (sorted(world.store.taken), world.aside()) == ([0, 1, 2, 3, 4], [])


def test_a_broken_engine_costs_a_few_batches_and_the_rest_waits(tmp_path: Path) -> None:
    """When the engine takes nothing at all, only so many batches are set aside, and nothing is dropped."""
    sink = StoreSink(ScriptedStore(lambda seq: EngineError("gone", 74)))
    blamed = 0
    for seq in range(100):
        try:
            sink.write([Batch(WRITER, seq, [])])
        except Retry:
            continue
        except EngineError:
            blamed += 1
    assert blamed == MAX_BLAMED


def test_a_full_quarantine_holds_what_the_store_stumbles_on(tmp_path: Path) -> None:
    """A bug of ours drops nothing: with no room to set a batch aside it stays in the journal."""
    world = World(tmp_path, lambda seq: ZeroDivisionError() if seq == 3 else None, most_entries=0).run(1)
    assert (sorted(set(world.store.taken)), world.source.settled) == ([0, 1, 2], 0)
    assert (world.counters.total("dropped"), world.source.rewound) == (0, 1)
    assert "full" in world.pumping.problem


class FailingSource(ListSource):
    """A source that fails every second time."""

    def __init__(self) -> None:
        super().__init__(0)
        self.calls = 0

    def read(self, limit: int) -> list[ReceivedBatch]:
        """Raise, or return nothing."""
        self.calls += 1
        if self.calls % 2:
            raise OSError("a file system that comes and goes")
        return []


def test_failing_source(tmp_path: Path) -> None:
    """A failing source does not lose records of another source."""
    world = World(tmp_path, lambda seq: None, FailingSource()).run()
    assert (sorted(world.store.taken), world.source.settled) == ([0, 1, 2, 3, 4], 5)
    assert world.counters.total("retried", "pump") >= 1
    assert world.pumping.problem == ""


def test_failing_listener(tmp_path: Path) -> None:
    """A listener that raises costs its own news only."""

    def listener(items: Sequence[ReceivedBatch]) -> None:
        raise ValueError("no")

    stored: Topic[Sequence[ReceivedBatch]] = Topic()
    stored.subscribe(listener)
    world = World(tmp_path, lambda seq: None, stored=stored).run()
    assert (sorted(world.store.taken), world.source.settled, len(world.heard)) == ([0, 1, 2, 3, 4], 5, 5)
    assert world.counters.total("dropped", "listener") == 5


class _Commits:
    """A pump on a source that always has one more batch, and the times of its commits."""

    def __init__(self, home: Path, quiet_pace: float, is_due: Callable[[], bool] = lambda: False) -> None:
        self.times: list[float] = []
        self.readers = Readers()
        counters, source = Counters(), ListSource(1000)
        groups = GroupReader([source], Cursors(home, "x"), counters, group_records=1)
        groups_read = groups.read

        def read(limit: int) -> list[Batch]:
            found = groups_read(limit)
            groups.full = False
            return found

        groups.read = read  # type: ignore[method-assign]
        sink, quarantine = StoreSink(ScriptedStore(lambda seq: None)), Quarantine(home, "store")
        self.pump = StorePump(
            *(sink, groups, quarantine, counters),
            pace=0.001,
            quiet_pace=lambda: quiet_pace,
            is_due=is_due,
            readers=self.readers,
        )
        self.pump.stored.subscribe(lambda items: self.times.append(time.monotonic()))
        self.pump.start()


def test_fewer_commits_while_nobody_reads(tmp_path: Path, until: Callable[..., None]) -> None:
    """While nobody reads, commits are further apart."""
    commits = _Commits(tmp_path, 0.2)
    until(lambda: len(commits.times) >= 4)
    commits.pump.stop(0.0)
    first, *_, last = commits.times[:4]
    assert last - first >= 3 * 0.2 * 0.9


def test_a_reader_ends_the_wait(tmp_path: Path, until: Callable[..., None]) -> None:
    """The first request makes the pump store at once, and as often as usual from then on."""
    commits = _Commits(tmp_path, 3600.0)
    until(lambda: bool(commits.times))
    assert len(commits.times) == 1
    commits.readers.note()
    until(lambda: len(commits.times) >= 10)
    commits.pump.stop(0.0)


def test_a_reason_to_store_ends_the_wait(
    tmp_path: Path, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pump looks now and then whether there is a reason to store at once, such as a process that ended."""
    monkeypatch.setattr(store_pump, "LOOK_SECONDS", 0.01)
    due = threading.Event()
    commits = _Commits(tmp_path, 3600.0, due.is_set)
    until(lambda: bool(commits.times))
    assert len(commits.times) == 1
    due.set()
    until(lambda: len(commits.times) >= 3)
    commits.pump.stop(0.0)


def test_a_reader_can_wait_until_what_is_written_is_stored(tmp_path: Path, until: Callable[..., None]) -> None:
    """The first request after a while sees what was written before it, unless that takes too long."""
    commits = _Commits(tmp_path, 3600.0)
    until(lambda: bool(commits.times))
    assert not commits.pump.catch_up(0.01)
    commits.readers.note()
    assert commits.pump.catch_up(60.0)
    assert len(commits.times) >= 2
    commits.pump.stop(0.0)
    assert not commits.pump.catch_up(60.0)  # nobody waits for a pump that has stopped


def test_a_quiet_pump_stops_at_once(tmp_path: Path, until: Callable[..., None]) -> None:
    """A pump that waits because nobody reads stores the rest when it is stopped."""
    commits = _Commits(tmp_path, 3600.0)
    until(lambda: bool(commits.times))
    began = time.monotonic()
    commits.pump.stop(60.0)
    assert len(commits.times) == 1000
    assert time.monotonic() - began < 3600.0 / 10


def test_no_batch_is_blamed_for_a_damaged_store(tmp_path: Path) -> None:
    """Everything waits, and the reason says what to do."""
    sink = StoreSink(ScriptedStore(lambda seq: Damaged("Checksum doesn't match", 40)))
    for seq in range(100):
        with pytest.raises(Retry, match="stepscope store check"):
            sink.write([Batch(WRITER, seq, [])])


def test_recent_requests() -> None:
    """Somebody reads for a while after each request, and nobody does before the first."""
    now = 0.0
    readers = Readers(lambda: now)
    assert not readers.any()
    readers.note()
    now = QUIET_SECONDS - 1
    assert readers.any()
    now = QUIET_SECONDS
    assert not readers.any()


def test_long_requests() -> None:
    """A request that takes hours, such as a live stream, counts as long as it lasts."""
    now = 0.0
    readers = Readers(lambda: now)
    with readers.reading():
        now = 7200.0
        assert readers.any()
    assert readers.any()
    now += QUIET_SECONDS
    assert not readers.any()


def test_each_request_is_announced() -> None:
    """The store pump hears of each request when it begins."""
    heard: list[bool] = []
    readers = Readers()
    readers.subscribe(lambda: heard.append(readers.any()))
    with readers.reading():
        assert heard == [True]
    readers.note()
    assert heard == [True, True]
