"""Diagnosis in the hub: as records arrive, from the store where they were missed, bounded, and across restarts."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.hub.diagnosing import thread
from stepscope.hub.home import HubHome
from stepscope.hub.intake.store_pump import ReceivedBatch, measured
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.store.read.finding_catalog import read_findings, undiagnosed
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.hub.store.store import open_store
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record, Span

START = 1_790_000_000 * 10**9
SECOND = 10**9
SPIKE = 80


class World:
    """A hub whose threads do not run: records are stored and diagnosed by hand."""

    def __init__(self, home: Path) -> None:
        place = HubHome(home)
        self.hub = Hub(HubOptions(home=home), place, open_store(place.store), Tokens(place.tokens))
        self.diagnosing = self.hub.diagnosing

    def store(self, *batches: Batch, heard: bool = True) -> None:
        """Store batches, as the pump does; `unheard` are those that are not published to the thread."""
        self.hub.store.write_many(batches)
        if heard:
            self.hub.here.stored.announce(measured(ReceivedBatch("test", batch) for batch in batches), print)

    def settle(self) -> None:
        """Let the thread do all it has to."""
        while self.diagnosing.step():
            pass
        self.diagnosing.step()

    def kinds(self, run: str) -> list[str]:
        """The kinds of findings that are stored."""
        number = run_number(self.hub.store.engine, run)
        assert number is not None
        return [each.kind for each in read_findings(self.hub.store.engine, number)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A hub on an empty home that stores findings at once."""
    monkeypatch.setattr(thread, "STORE_SECONDS", 0.0)
    monkeypatch.setattr(thread, "TICK_SECONDS", 0.0)
    made = World(tmp_path / "home")
    yield made
    made.hub.close(0.1)


def began() -> Event:
    """The event with which a run begins."""
    return Event(START, None, None, None, None, 9, names.EVENT_STARTED, {"config": {}})


def ended(step: int) -> Event:
    """The event with which a run ends."""
    return Event(START + step * SECOND, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "finished"})


def losses(first: int, last: int, spike: int = SPIKE) -> list[Record]:
    """A loss that trembles a little, with a spike."""
    values = {step: 9.0 if step == spike else 1.0 + (step * 7919 % 13) / 100 for step in range(first, last)}
    return [Metric(START + step * SECOND, step, None, "trainer", {"loss": value}) for step, value in values.items()]


def batch(seq: int, records: list[Record], run: str = "r", rank: int = 0, world: int = 1) -> Batch:
    """A batch of a rank."""
    return Batch(Writer(id=f"w{rank}", run=run, project="p", rank=rank, world_size=world, wall_ns=START), seq, records)


def test_records_are_diagnosed_as_they_arrive(world: World) -> None:
    """Those of an older run come from the store, the others from the pump; what is found is stored and published."""
    told: list[str] = []
    world.diagnosing.found.subscribe(lambda changed: told.extend(each.run for each in changed))
    world.store(batch(1, [began(), *losses(0, 60)]))
    world.settle()
    assert world.kinds("r") == []
    assert world.diagnosing.health()["live_runs"] == 1
    world.store(batch(2, losses(60, 120)))
    world.settle()
    assert world.kinds("r") == ["spike"]
    assert told == ["r"]
    assert not world.diagnosing.is_waiting("r")


def test_a_run_is_followed_from_its_first_record_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pump just stored is not read again from the store."""
    with monkeypatch.context() as patch:
        patch.setattr(world.hub.states, "state", lambda row: "running")
        patch.setattr(thread, "replay", lambda *_: pytest.fail("was read"))
        world.settle()  # it looks for older runs once
        world.store(batch(0, [began(), *losses(0, 60)]))
        world.settle()
        world.store(batch(1, losses(60, 120)))
        world.settle()
    assert world.kinds("r") == ["spike"]
    assert not world.diagnosing.is_waiting("r")


@pytest.mark.parametrize("heard", [True, False])
def test_a_run_whose_beginning_was_not_heard_is_read_from_the_store(
    world: World, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch of another rank alone does not make a beginning."""
    monkeypatch.setattr(world.hub.states, "state", lambda row: "running")
    world.store(batch(0, [began(), *losses(0, 120)]), heard=False)
    if heard:
        world.store(batch(0, [], rank=1, world=2))
    world.store(batch(1, losses(120, 130)))
    world.settle()
    assert "spike" in world.kinds("r")


def test_a_hub_without_runs_rests(world: World) -> None:
    """It looks for what is missing only while it follows a run."""
    world.settle()
    assert world.diagnosing._rest() == thread.NOTHING_SECONDS
    world.store(batch(0, [began(), *losses(0, 60)]))
    world.settle()
    assert world.diagnosing._rest() <= thread.TICK_SECONDS


def test_a_hub_that_nobody_watches_rests(world: World) -> None:
    """Also while it follows a run; what is found is stored as soon as ever."""
    world.diagnosing._is_watched = lambda: False
    world.store(batch(0, [began(), *losses(0, 60)]))
    world.settle()
    assert world.diagnosing._rest() == thread.NOTHING_SECONDS
    world.store(batch(1, losses(60, 120)))
    world.diagnosing._drain()
    assert world.diagnosing._live["r"].changed
    assert world.diagnosing._rest() < 1.0


def test_a_batch_that_comes_twice_is_diagnosed_once(world: World) -> None:
    """A hub that reads a journal again finds no duplicate steps in it."""
    first, second = batch(1, [began(), *losses(0, 60)]), batch(2, losses(60, 120))
    world.store(first)
    world.settle()
    for _ in range(3):
        world.store(first, second)
        world.settle()
    assert world.kinds("r") == ["spike"]


def test_findings_missed_by_the_thread_are_read_from_the_store(world: World) -> None:
    """An overflow of the queue costs a replay, and nothing else."""
    world.store(batch(1, [began(), *losses(0, 60)]))
    world.settle()
    world.store(batch(2, losses(60, 90)), heard=False)
    world.store(batch(3, losses(90, 120)))
    world.diagnosing.forget("r")  # as when the queue overflows: its state is dropped and it is replayed
    world.store(batch(4, losses(120, 130)))
    world.settle()
    assert world.kinds("r") == ["spike"]


@pytest.mark.parametrize(("limit", "most"), [("most_records", 10), ("most_bytes", 1000)])
def test_a_queue_that_overflows_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """After an overflow, of records or of their memory, the affected runs are replayed from the store."""
    world.store(batch(1, [began(), *losses(0, 60)]))
    world.settle()
    monkeypatch.setattr(world.diagnosing.waiting, limit, most)
    world.store(batch(2, losses(60, 120)))
    assert world.diagnosing.is_waiting("r")
    assert world.diagnosing.health()["queued_records"] <= 10
    world.settle()
    assert (world.kinds("r"), world.diagnosing.overflows) == (["spike"], 1)


def test_states_are_bounded_and_come_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently active run is evicted with its findings stored, and replayed when it continues."""
    monkeypatch.setattr(thread, "MAX_RUNS", 1)
    world.store(batch(1, [began(), *losses(0, 90)], run="a"))
    world.settle()
    world.store(batch(1, [began(), *losses(0, 90)], run="b"))
    world.settle()
    assert world.diagnosing.health()["live_runs"] == 1
    assert undiagnosed(world.hub.store.engine, thread.VERSION) == []
    world.store(batch(2, losses(90, 120, spike=100), run="a"))
    world.settle()
    assert world.kinds("a") == ["spike", "spike"]


def test_a_restart_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is diagnosed to its end is not read again; another version of the engine reads everything again."""
    world.store(batch(1, [began(), *losses(0, 120), ended(121)]))
    world.settle()
    world.diagnosing.stop()
    assert undiagnosed(world.hub.store.engine, thread.VERSION) == []
    assert len(undiagnosed(world.hub.store.engine, thread.VERSION + 1)) == 1
    world.store(batch(2, losses(121, 130)), heard=False)
    assert len(undiagnosed(world.hub.store.engine, thread.VERSION)) == 1


def test_ranks_that_were_stored_one_after_another_are_compared(world: World) -> None:
    """A replay is in the order in which ranks wrote, not in that in which their journals were read."""
    for rank in range(2):
        records: list[Record] = [began()]
        for step in range(120):
            time, took = START + step * SECOND, SECOND // (2 if rank == 1 and step >= 60 else 5)
            for place, (name, parent, lasts) in enumerate(
                (("train.step", None, SECOND * 9 // 10), ("forward", 0, took))
            ):
                above = None if parent is None else bytes([rank + 1, parent]) + (step + 1).to_bytes(6, "big")
                id = bytes([rank + 1, place]) + (step + 1).to_bytes(6, "big")
                records.append(Span(time, lasts, step, None, bytes(15) + bytes([rank]), id, above, name))
            records.append(Metric(time + SECOND // 2, step, None, None, {"loss": 1.0 + (step % 7) / 100}))
        world.store(batch(1, [*records, ended(121)], rank=rank, world=2))
    world.settle()
    assert "straggler" in world.kinds("r")


@pytest.mark.parametrize("first", [0, 60])
def test_a_run_on_which_the_engine_fails_harms_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """In a replay or as its records arrive: it is counted, and the others are diagnosed."""
    feed = Diagnosis.feed_many

    def failing(self: Diagnosis, rank: int, records: Iterable[Record], attempt: int = 1, host: str = "") -> None:
        records = list(records)
        if rank == 7 and any(record.step == first for record in records):
            raise ZeroDivisionError
        feed(self, rank, records, attempt, host)

    monkeypatch.setattr(Diagnosis, "feed_many", failing)
    for part in range(2):
        for run, rank in (("bad", 7), ("good", 0)):
            world.store(batch(part, losses(60 * part, 60 * part + 60), run=run, rank=rank))
        world.settle()
    assert world.kinds("good") == ["spike"]
    assert world.diagnosing.health()["failed_runs"] == {"bad": "ZeroDivisionError()"}


def test_a_store_that_is_behind_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is being stored is replayed when the store has caught up, or when nothing of it came for a while."""
    groups = world.hub.pump._groups
    groups.full = True
    world.store(batch(1, [began(), *losses(0, 120), ended(121)]))
    world.settle()
    assert (world.diagnosing.health()["live_runs"], world.diagnosing.is_waiting("r")) == (0, True)
    monkeypatch.setattr(thread, "BEHIND_SECONDS", 0.0)
    world.settle()
    assert world.kinds("r") == ["spike"]
    monkeypatch.undo()
    world.store(batch(1, [began(), *losses(0, 120), ended(121)], run="other"))
    groups.full = False
    world.settle()
    assert world.kinds("other") == ["spike"]


def test_what_an_earlier_hub_left_is_not_complete_before_it_is_diagnosed(world: World) -> None:
    """A hub that starts says so of every run until it knows which were diagnosed, then of those that were not."""
    world.store(batch(1, [began(), *losses(0, 120), ended(121)]), heard=False)
    assert world.diagnosing.progress("r") < 1.0
    world.diagnosing._replays.find_missed()
    world.diagnosing._looked = True
    assert world.diagnosing.progress("r") < 1.0
    world.settle()
    assert (world.diagnosing.progress("r"), world.kinds("r")) == (1.0, ["spike"])


def test_a_batch_too_large_for_the_queue_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of such a batch is incomplete until it is replayed, even if nothing else is queued."""
    world.store(batch(1, [began(), *losses(0, 60)]))
    world.settle()
    monkeypatch.setattr(world.diagnosing.waiting, "most_records", 10)
    world.store(batch(2, losses(60, 120)))
    world.diagnosing._store_changed(world.diagnosing._clock())
    assert world.diagnosing.is_waiting("r")


def test_a_run_is_compared_with_earlier_runs_of_its_project(world: World) -> None:
    """Steps that take half as long again as in two runs with the same settings are a finding; other work is not."""

    def steps(took: float, config: dict[str, object], at: int) -> list[Record]:
        start = START + at * 3600 * SECOND
        made: list[Record] = [Event(start, None, None, None, None, 9, names.EVENT_STARTED, {"config": config})]
        for step in range(120):
            lasts = int(SECOND * took * (1 + (step * 7919 % 13) / 1000))
            id = (step + 1).to_bytes(8, "big")
            made.append(Span(start + step * SECOND, lasts, step, None, bytes(15) + b"1", id, None, "train.step"))
        return [*made, Event(start + 121 * SECOND, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "ok"})]

    for at, (run, took, size) in enumerate((("a", 0.2, 8), ("b", 0.21, 8), ("slow", 0.31, 8), ("large", 0.31, 64))):
        who = Writer(id="w", run=run, project="p", wall_ns=START + at * 3600 * SECOND)
        world.store(Batch(who, 1, steps(took, {"batch_size": size, "seed": at}, at)))
        world.settle()
    assert [world.kinds(run) for run in ("a", "b", "slow", "large")] == [[], [], ["slower_than_before"], []]


def test_a_run_that_is_looked_at_is_diagnosed_first(world: World) -> None:
    """Whoever asks for the findings of a run does not wait for those of two hundred others."""
    records = [began(), *losses(0, 60), ended(60)]
    world.store(*(batch(1, records, run=f"r{number:03d}") for number in range(200)), heard=False)
    world.diagnosing.find_missed()
    world.diagnosing.step()
    assert world.diagnosing.progress("r000") == 0.0
    for _ in range(3):
        world.diagnosing.step()
    assert world.diagnosing.progress("r000") == 1.0
    assert world.diagnosing.health()["waiting_runs"] > 190
