"""A server that fails: whether it is down or one record is the cause, and that nothing else is quarantined."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.model.errors import ServerError
from stepscope.model.ports import Batch
from tests.test_pump import Clock, Peer, entries, make_pump, run_dry, steps_of, write_journal


@settings(max_examples=25)
@given(poison=st.sets(st.integers(0, 199), max_size=6), outage=st.integers(0, 3))
def test_a_record_on_which_the_server_fails_is_found(
    tmp_path_factory: pytest.TempPathFactory, poison: set[int], outage: int
) -> None:
    """With HTTP 500 for a poison record, and outages, only that record is quarantined; the rest is delivered once."""
    home = tmp_path_factory.mktemp("home")
    write_journal(home, 200)
    clock = Clock()
    down = [(clock.now + start, clock.now + start + 20) for start in (0, 25, 60)[:outage]]

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        count = len(steps_of(batches))
        if any(start <= clock.now < end for start, end in down) or poison & set(steps_of(batches)):
            raise ServerError("HTTP 500", range(count))
        return {}

    pump = make_pump(home, peer := Peer(answer), clock)
    run_dry(pump, clock, seconds=3600)
    assert sorted(peer.taken) == sorted(set(range(200)) - poison)
    assert sorted(step for _, steps in entries(home) for step in steps) == sorted(poison)
    assert (pump.counts["written"], pump.counts["rejected"]) == (200 - len(poison), len(poison))


def test_a_server_that_always_fails_is_waited_for(tmp_path: Path) -> None:
    """HTTP 500 for everything, for an hour: it is the server, so nothing is quarantined and few requests are made."""
    write_journal(tmp_path, 2000)
    clock = Clock()
    back = clock.now + 3600

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if clock.now < back:
            raise ServerError("HTTP 500", range(len(steps_of(batches))))
        return {}

    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    run_dry(pump, clock)
    assert sorted(peer.taken) == list(range(2000))
    assert pump.counts["written"] == 2000
    assert not pump.counts["rejected"]
    assert len(peer.offers) < 200


def test_a_single_poison_record_waits_for_others(tmp_path: Path) -> None:
    """A single poison record looks like a failing server; it is found once others arrive."""
    write_journal(tmp_path, 1)
    clock = Clock()

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if 0 in steps_of(batches):
            raise ServerError("HTTP 500", range(len(steps_of(batches))))
        return {}

    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    run_dry(pump, clock, seconds=600)
    assert not pump.counts["rejected"]
    write_journal(tmp_path, 3, writer="r1-a1-host-2-abc", first=1)
    run_dry(pump, clock, seconds=600)
    assert sorted(peer.taken) == [1, 2, 3]
    assert [steps for _, steps in entries(tmp_path)] == [[0]]


def test_what_a_failing_server_took_is_not_offered_again(tmp_path: Path) -> None:
    """A server error names its records: the others are written, and never offered again."""
    write_journal(tmp_path, 20)
    clock = Clock()
    tries = iter(range(3))

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        steps = steps_of(batches)
        if next(tries, None) is not None:
            odd = [index for index, step in enumerate(steps) if step % 2]
            peer.taken += [step for step in steps if step % 2 == 0]
            raise ServerError("HTTP 500", odd)
        return {}

    pump = make_pump(tmp_path, peer := Peer(answer), clock)
    run_dry(pump, clock)
    assert sorted(peer.taken) == list(range(20))
    assert pump.counts["written"] == 20


def test_parts_of_a_batch_have_numbers_of_their_own(tmp_path: Path) -> None:
    """A destination that ignores numbers it has seen takes each part of a batch that was split, also after a kill."""
    write_journal(tmp_path, 10)
    seen: dict[int, list[int]] = {}
    clock = Clock()

    def answer(batches: Sequence[Batch]) -> Mapping[str, int]:
        if 7 in steps_of(batches):
            raise ServerError("HTTP 500", range(len(steps_of(batches))))
        for batch in batches:
            assert seen.setdefault(batch.seq, steps_of([batch])) == steps_of([batch])
        return {}

    killed = make_pump(tmp_path, Peer(answer), clock)
    while not seen:
        clock.now += killed.step().wait
    run_dry(make_pump(tmp_path, Peer(answer), clock), clock, seconds=3600)
    assert sorted(step for steps in seen.values() for step in steps) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [steps for _, steps in entries(tmp_path)] == [[7]]
