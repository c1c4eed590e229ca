"""What becomes of records between a journal and a sink: delivered in order, waited for, split, set aside, counted."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine, quarantined
from stepscope.journal.segments import Journal
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from stepscope.pump import FIRST_WAIT, GROUP_BYTES, LONGEST_WAIT, OPEN_AFTER, PACE_SECONDS, PROBE_BYTES, Progress, Pump

Answer = Callable[[Sequence[Batch]], Mapping[str, int]]


class Peer:
    """A destination that keeps what it takes; `answer` decides, and may raise."""

    timeout = 1.0

    def __init__(self, answer: Answer = lambda batches: {}, divisible: bool = True) -> None:
        self.answer, self.divisible = answer, divisible
        self.taken: list[int] = []
        self.offers: list[int] = []
        self.closed = False

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Take what the answer allows."""
        steps = [record.step or 0 for batch in batches for record in batch.records]
        self.offers.append(len(steps))
        try:
            refused = self.answer(batches)
        except Reject as error:
            self.taken += [step for index, step in enumerate(steps) if index not in error.where]
            raise
        self.taken += steps
        return refused

    def close(self) -> None:
        """Take note."""
        self.closed = True


class Clock:
    """A clock that only moves when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def steps_of(batches: Sequence[Batch]) -> list[int]:
    """The steps of all records."""
    return [record.step or 0 for batch in batches for record in batch.records]


def write_journal(
    home: Path, count: int, per_batch: int = 10, writer: str = "r0-a1-host-1-abc", first: int = 0
) -> None:
    """Append metrics with rising steps to a writer's journal."""
    journal = Journal(home / "runs" / "run" / writer, Writer(id=writer, run="run", project="p"))
    for start in range(first, first + count, per_batch):
        steps = range(start, min(start + per_batch, first + count))
        journal.append([msgspec.msgpack.encode(Metric(step, step, None, "trainer", {"loss": 0.5})) for step in steps])
    journal.close()


def make_pump(home: Path, peer: Peer, clock: Clock, group_bytes: int = GROUP_BYTES) -> Pump:
    """A pump as a shipper makes it."""
    following = Following(home, "peer", clock=clock)
    return Pump(peer, following, Quarantine(home, "peer"), group_bytes=group_bytes, clock=clock, chance=lambda: 1.0)


def run_dry(pump: Pump, clock: Clock, seconds: float = 1e6) -> float:
    """Step, letting the time pass that the pump wants to wait, until nothing moves; the time it took."""
    began, idle = clock.now, 0
    while idle < 3 and clock.now - began < seconds:
        progress = pump.step()
        idle = idle + 1 if progress == Progress(False, PACE_SECONDS) else 0
        clock.now += progress.wait
    return clock.now - began


def entries(home: Path) -> list[tuple[str, list[int]]]:
    """What is in the quarantine: reason and steps."""
    return [(entry.note.reason, steps_of([entry.batch])) for entry in Quarantine(home, "peer").entries()]


def test_in_order_and_once(tmp_path: Path) -> None:
    """Everything arrives once and in order, in groups of the size asked for; a second pump has nothing left to do."""
    write_journal(tmp_path, 1000)
    clock, peer = Clock(), Peer()
    pump = make_pump(tmp_path, peer, clock, group_bytes=2000)
    run_dry(pump, clock)
    assert peer.taken == list(range(1000))
    assert len(peer.offers) > 10
    assert pump.counts == {"written": 1000}
    write_journal(tmp_path, 10, writer="r1-a1-host-2-abc", first=1000)
    again = Peer()
    run_dry(make_pump(tmp_path, again, clock), clock)
    assert again.taken == list(range(1000, 1010))


def test_nothing_to_do_takes_no_time(tmp_path: Path) -> None:
    """Without journals a step only returns the time of the next one."""
    assert make_pump(tmp_path, Peer(), Clock()).step() == Progress(False, 0.25)


def test_retry_waits_longer_and_longer(tmp_path: Path) -> None:
    """Waits double up to the longest, and the sink's own `after` is kept exactly."""
    write_journal(tmp_path, 10)
    clock = Clock()
    afters: list[float | None] = [None, None, None, 7.5]

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if afters:
            raise Retry("busy", afters.pop(0))
        return {}

    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    waits = []
    while not peer.taken:
        waits.append(pump.step().wait)
        clock.now += waits[-1]
    assert waits == [FIRST_WAIT, FIRST_WAIT * 2, FIRST_WAIT * 4, 7.5, 0.0]
    assert pump.counts == {"written": 10, "retried": 4, "retried/busy": 4}


def test_a_sink_that_says_when_is_promising(tmp_path: Path) -> None:
    """A failure with a retry delay may end by then; one without may not."""
    write_journal(tmp_path, 10)
    clock = Clock()
    afters: list[float | None] = [None, 7.5]

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if afters:
            raise Retry("busy", afters.pop(0))
        return {}

    pump = make_pump(tmp_path, Peer(answer), clock)
    assert pump.may_accept_before(clock.now)
    clock.now += pump.step().wait
    assert not pump.may_accept_before(clock.now + 1e6)
    pump.step()
    assert [pump.may_accept_before(clock.now + seconds) for seconds in (7.0, 8.0)] == [False, True]
    clock.now += 7.5
    pump.step()
    assert pump.may_accept_before(clock.now)


def test_dead_sink_is_probed_with_little(tmp_path: Path) -> None:
    """Half an hour down: few tries, small ones; then everything follows in order."""
    write_journal(tmp_path, 20_000, per_batch=500)
    clock = Clock()
    back = clock.now + 1800

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if clock.now < back:
            raise Retry("refused")
        return {}

    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    run_dry(pump, clock, seconds=1700)
    assert pump.is_stuck
    assert len(peer.offers) < OPEN_AFTER + 1700 / LONGEST_WAIT * 2
    assert peer.offers[-1] < peer.offers[0]
    assert peer.offers[-1] * 20 < PROBE_BYTES * 2
    run_dry(pump, clock)
    assert peer.taken == list(range(20_000))
    assert not pump.is_stuck


def test_rejected_records_are_set_aside(tmp_path: Path) -> None:
    """The records at `where` are quarantined with the reason, the others are written."""
    write_journal(tmp_path, 30)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        bad = [index for index, step in enumerate(steps_of(batches)) if step % 10 == 3]
        if bad:
            raise Reject("unlucky", bad)
        return {}

    clock = Clock()
    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    run_dry(pump, clock)
    assert sorted(peer.taken) == [step for step in range(30) if step % 10 != 3]
    assert entries(tmp_path) == [("unlucky", [3]), ("unlucky", [13]), ("unlucky", [23])]
    assert pump.counts == {"written": 27, "rejected": 3, "rejected/unlucky": 3}
    assert quarantined(tmp_path) == ["peer"]


@settings(max_examples=15)
@given(poison=st.sets(st.integers(0, 99), max_size=5), together=st.booleans())
def test_poison_is_found(tmp_path_factory: pytest.TempPathFactory, poison: set[int], together: bool) -> None:
    """A record on which the sink fails, or for which it rejects a whole entry, is quarantined alone."""
    home = tmp_path_factory.mktemp("home")
    write_journal(home, 100)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        steps = steps_of(batches)
        if poison & set(steps):
            if together:
                raise Reject("bad", range(len(steps)), together=True)
            raise ZeroDivisionError
        return {}

    clock = Clock()
    pump = make_pump(home, peer := Peer(answer), clock)
    run_dry(pump, clock)
    assert sorted(peer.taken) == sorted(set(range(100)) - poison)
    assert sorted(step for _, steps in entries(home) for step in steps) == sorted(poison)
    assert (pump.counts["written"], pump.counts["rejected"]) == (100 - len(poison), len(poison))


def test_numbered_batches_stay_whole(tmp_path: Path) -> None:
    """Where the destination tells batches by number, the poison is looked for among batches only."""
    write_journal(tmp_path, 100)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        assert all(len(batch.records) == 10 for batch in batches)
        if 42 in steps_of(batches):
            raise ValueError("no")
        return {}

    clock = Clock()
    run_dry(make_pump(tmp_path, peer := Peer(answer, divisible=False), clock), clock)
    assert len(peer.taken) == 90
    assert [steps for _, steps in entries(tmp_path)] == [list(range(40, 50))]


def test_refusing_everything_is_noticed(tmp_path: Path) -> None:
    """A sink that refuses all is neither asked a thousand times nor fed the whole journal at once."""
    write_journal(tmp_path, 5000, per_batch=100)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        raise Reject("unauthorized", range(len(steps_of(batches))), together=True)

    clock = Clock()
    pump = make_pump(tmp_path, peer := Peer(answer), clock, group_bytes=3000)
    run_dry(pump, clock, seconds=120)
    assert len(peer.offers) < 60
    assert pump.is_stuck
    assert pump.counts["rejected"] < 1500
    assert not peer.taken


def test_counts_what_was_refused_unnamed(tmp_path: Path) -> None:
    """A partial success that names no record is counted by its reason."""
    write_journal(tmp_path, 10)
    clock = Clock()
    pump = make_pump(tmp_path, Peer(lambda batches: {"too old": 4}), clock)
    run_dry(pump, clock)
    assert pump.counts == {"written": 6, "rejected": 4, "rejected/too old": 4}


def test_full_quarantine_drops_and_counts(tmp_path: Path) -> None:
    """Beyond its bound the quarantine takes nothing more, and what is refused then is counted as dropped."""
    write_journal(tmp_path, 10, per_batch=1)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        raise Reject("no", range(len(steps_of(batches))))

    clock = Clock()
    following = Following(tmp_path, "peer", clock=clock)
    pump = Pump(Peer(answer), following, Quarantine(tmp_path, "peer", most_entries=4), clock=clock)
    run_dry(pump, clock, seconds=60)
    assert (pump.counts["rejected"], pump.counts["dropped"]) == (4, 6)


def test_a_full_quarantine_holds_what_the_sink_stumbles_on(tmp_path: Path) -> None:
    """A bug drops nothing: if the quarantine is full, the record waits for room."""
    write_journal(tmp_path, 10)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if 3 in steps_of(batches):
            raise ZeroDivisionError
        return {}

    clock = Clock()
    (tmp_path / "quarantine" / "peer").mkdir(parents=True)
    (tmp_path / "quarantine" / "peer" / "1.lot").write_bytes(b"junk")
    following = Following(tmp_path, "peer", clock=clock)
    pump = Pump(peer := Peer(answer), following, Quarantine(tmp_path, "peer", most_entries=1), clock=clock)
    run_dry(pump, clock, seconds=300)
    assert (peer.taken, "full" in pump.problem, pump.counts["dropped"]) == ([0, 1, 2], True, 0)
    (tmp_path / "quarantine" / "peer" / "1.lot").unlink()
    run_dry(pump, clock)
    assert (sorted(peer.taken), [steps for _, steps in entries(tmp_path)]) == ([0, 1, 2, *range(4, 10)], [[3]])
    assert pump.problem == ""


def test_told_of_every_outcome(tmp_path: Path) -> None:
    """Who wants to know hears of the records themselves: written, retried, rejected."""
    write_journal(tmp_path, 10)
    answers: list[Exception] = [Retry("busy"), Reject("bad", [4, 5])]

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if answers:
            raise answers.pop(0)
        return {}

    heard: list[tuple[str, list[int], str]] = []
    clock, following = Clock(), Following(tmp_path, "peer")
    pump = Pump(
        Peer(answer), following, Quarantine(tmp_path, "peer"), clock=clock,
        on_outcome=lambda outcome, batches, reason: heard.append((outcome, steps_of(batches), reason)),
    )  # fmt: skip
    run_dry(pump, clock)
    rest = [step for step in range(10) if step not in (4, 5)]
    assert heard == [("retried", list(range(10)), "busy"), ("rejected", [4, 5], "bad"), ("written", rest, "")]


def test_a_kill_repeats_the_group_under_way_only(tmp_path: Path) -> None:
    """After a pump died in the middle of a delivery, another continues from its cursors without loss, in order."""
    write_journal(tmp_path, 500)

    class Killed(BaseException):
        pass

    clock, taken, life = Clock(), list[int](), 0
    while life < 50:
        life += 1
        offers = 0

        def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
            nonlocal offers
            offers += 1
            taken.extend(steps_of(batches))
            if offers > 3:
                raise Killed
            return {}

        try:
            run_dry(make_pump(tmp_path, Peer(answer), clock, group_bytes=1000), clock)
            break
        except Killed:
            continue
    assert life > 3
    assert set(taken) == set(range(500))
    assert len(taken) < 500 + life * 60


def test_close_closes_the_sink(tmp_path: Path) -> None:
    """Closing lets the sink go and leaves what was under way in the journal."""
    write_journal(tmp_path, 10)

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        raise Retry("later")

    clock = Clock()
    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    pump.step()
    pump.close()
    assert peer.closed
    run_dry(make_pump(tmp_path, again := Peer(), clock), clock)
    assert again.taken == list(range(10))


def test_two_sinks_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each has its own cursors: one that is dead changes nothing for the other."""
    write_journal(tmp_path, 100)
    clock = Clock()

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        raise Retry("dead")

    dead = Pump(Peer(answer), Following(tmp_path, "dead", clock=clock), Quarantine(tmp_path, "dead"), clock=clock)
    well = make_pump(tmp_path, peer := Peer(), clock)
    for _ in range(10):
        dead.step()
        well.step()
    assert peer.taken == list(range(100))
    assert dead.counts["written"] == 0
