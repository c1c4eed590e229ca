"""Stragglers: the rank for which the others wait is named, wherever its time goes."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

MS = 1_000_000
SYNC = "train.collective.gradient_sync"


def diagnosed(
    late: dict[int, float], steps: int = 120, since: int = 40, jitter: float = 1.0, computing: float = 10.0
) -> list[Finding]:
    """Four ranks that compute for 10 ms and meet; some come late from what is outside of their steps."""
    made, random_ = Diagnosis(world=4), random.Random(3)
    now, ids = 0, 0
    for step in range(steps):
        begins = {rank: now + int(MS * (late.get(rank, 0.0) if step >= since else 0.0)) for rank in range(4)}
        works = {rank: int(MS * (computing + jitter * random_.random())) for rank in range(4)}
        now = max(begins[rank] + works[rank] for rank in range(4)) + MS
        for rank in range(4):
            ids += 2
            root, inner = ids.to_bytes(8, "big"), (ids + 1).to_bytes(8, "big")
            arrived = begins[rank] + works[rank]
            made.feed(rank, Span(arrived, now - arrived, step, None, bytes(16), inner, root, SYNC))
            made.feed(rank, Span(begins[rank], now - begins[rank], step, None, bytes(16), root, None, "train.step"))
    return [each for each in made.findings() if "straggler" in each.kind]


def test_a_rank_that_loses_time_between_steps_is_named() -> None:
    """No span is slower on that rank, but it waits least in the collectives."""
    (found,) = diagnosed({1: 5.0})
    assert (found.kind, found.ranks, found.span) == ("straggler", (1,), None)
    assert abs((found.step or 0) - 40) <= 4
    assert "rank 1 has been slower" in found.text
    assert "time between steps" in found.text


def test_a_millisecond_that_a_rank_loses_counts_once_it_has_added_up() -> None:
    """For moments a core of one rank is slower, as others use it."""
    assert diagnosed({1: 1.5}, computing=3.0, jitter=0.2) == []
    (found,) = diagnosed({1: 1.5}, computing=3.0, jitter=0.2, steps=500)
    assert (found.kind, found.ranks) == ("straggler", (1,))


def test_ranks_that_are_late_by_turns_are_none() -> None:
    """On a busy machine another rank comes last each time."""
    assert diagnosed({}, jitter=8.0) == []


def test_a_slow_span_that_nobody_waits_for_is_no_straggler() -> None:
    """A rank may do the same work in another order, or begin earlier: it counts who is late where ranks meet."""
    made, random_, now, ids = Diagnosis(world=4), random.Random(5), 0, 0
    for step in range(120):
        took = {rank: int(MS * (10 + random_.random())) for rank in range(4)}
        end = now + max(took.values()) + MS
        for rank in range(4):
            ids += 3
            root, sync, slow = (each.to_bytes(8, "big") for each in (ids, ids + 1, ids + 2))
            arrived, inner = now + took[rank], MS * (8 if rank == 2 else 4)
            made.feed(rank, Span(now, inner, step, None, bytes(16), slow, root, "train.backward"))
            made.feed(rank, Span(arrived, end - arrived, step, None, bytes(16), sync, root, SYNC))
            made.feed(rank, Span(now, end - now, step, None, bytes(16), root, None, "train.step"))
        now = end
    assert [each for each in made.findings() if "straggler" in each.kind] == []


@pytest.mark.parametrize(
    ("pressure", "computes", "extra", "named"),
    [(0.6, 20.0, 5.0, False), (0.6, 20.0, 40.0, True), (0.0, 20.0, 5.0, True), (0.0, 3.0, 1.2, False)],
    ids=["busy", "busy, and late by three steps", "idle", "a millisecond"],
)
def test_a_busy_machine_makes_no_straggler(pressure: float, computes: float, extra: float, named: bool) -> None:
    """Where tasks wait for a CPU, or a millisecond is lost, only a rank that costs much of each step is named."""
    made, random_, now, ids = Diagnosis(world=4), random.Random(5), 0, 0
    for step in range(120):
        made.feed(0, Metric(now + 1, None, None, "system", {"psi/cpu": pressure}))
        took = {rank: int(MS * (computes + (extra if rank == 2 else 0.0) + random_.random())) for rank in range(4)}
        end = now + max(took.values()) + MS
        for rank in range(4):
            ids += 3
            root, sync, slow = (each.to_bytes(8, "big") for each in (ids, ids + 1, ids + 2))
            made.feed(rank, Span(now, took[rank], step, None, bytes(16), slow, root, "train.backward"))
            made.feed(rank, Span(now + took[rank], end - now - took[rank], step, None, bytes(16), sync, root, SYNC))
            made.feed(rank, Span(now, end - now, step, None, bytes(16), root, None, "train.step"))
        now = end
    assert [each.ranks for each in made.findings() if "straggler" in each.kind] == ([(2,)] if named else [])


def on_crowded_machine(
    seed: int, late: dict[int, float], where: str = "train.step", unlucky: int | None = None
) -> list[Finding]:
    """Four ranks that compute for 12 ms and are then preempted for up to seconds, more often in some stretches.

    From step 30 on some are late by so many ms, in their steps or between them; `unlucky` is preempted twice as often.
    """
    made, rng, now, ids = Diagnosis(world=4), random.Random(seed), 0, 0
    left = dict.fromkeys(range(4), 0)
    crowded = 0.3
    for step in range(110):
        if step % 12 == 0:
            crowded = rng.choice((0.15, 0.3, 0.6))
        made.feed(0, Metric(now + 1, None, None, "system", {"psi/cpu": 0.9}))

        def took(base: float, rank: int, often: float = crowded) -> int:
            often = min(2.0 * often, 0.7) if rank == unlucky else often
            return int(MS * (base * (1 + rng.random()) + (rng.expovariate(1 / 150) if rng.random() < often else 0)))

        extra = {rank: int(MS * late.get(rank, 0.0)) if step >= 30 else 0 for rank in range(4)}
        begins = {rank: left[rank] + took(0.2, rank) + extra[rank] * (where == "between") for rank in range(4)}
        alone = {rank: took(1.0, rank) + extra[rank] * (where == "train.step") for rank in range(4)}
        backward = {rank: took(5.0, rank) + extra[rank] * (where == "train.backward") for rank in range(4)}
        arrives = {rank: begins[rank] + alone[rank] + backward[rank] for rank in range(4)}
        now = max(arrives.values()) + MS
        for rank in range(4):
            ids += 3
            root, inner, sync = (each.to_bytes(8, "big") for each in (ids, ids + 1, ids + 2))
            left[rank] = now + took(0.1, rank)
            work = begins[rank] + alone[rank]
            made.feed(rank, Span(work, backward[rank], step, None, bytes(16), inner, root, "train.backward"))
            made.feed(rank, Span(arrives[rank], left[rank] - arrives[rank], step, None, bytes(16), sync, root, SYNC))
            whole = left[rank] - begins[rank]
            made.feed(rank, Span(begins[rank], whole, step, None, bytes(16), root, None, "train.step"))
    return [each for each in made.findings() if "straggler" in each.kind]


@pytest.mark.parametrize("where", ["train.step", "train.backward", "between"])
def test_a_late_rank_is_named_on_a_crowded_machine(where: str) -> None:
    """It is 30 ms late while any rank may be preempted for ten times as long at any step."""
    found = [on_crowded_machine(seed, {2: 30.0}, where) for seed in range(6)]
    assert [[each.ranks for each in one] for one in found] == [[(2,)]] * 6


def test_a_crowded_machine_alone_makes_no_straggler() -> None:
    """Ranks are late by turns; one that is preempted twice as often is not slower itself."""
    assert [on_crowded_machine(seed, {}) for seed in range(10)] == [[]] * 10
    assert [on_crowded_machine(seed, {}, unlucky=1) for seed in range(10)] == [[]] * 10
