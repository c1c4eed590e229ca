"""Stalls at every so many steps are named on a busy machine too, and those at random steps are left alone."""

import random

import pytest

from stepscope.diagnosis.detector import RunState, StepTimes
from stepscope.diagnosis.detectors import regular_stalls
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

MS = 10**6
EACH = "train/loss"


def found_in(every: int, stall: int, steps: int, *, at_random: float = 0.03, records: str = "") -> list[Finding]:
    """Diagnose steps of 8 ms on a busy machine, which delays one of some thirty by 20 to 300 ms."""
    made, now, chance = Diagnosis(), 10**18, random.Random(7)
    for step in range(steps):
        began = now
        if step % 50 == 0:
            made.feed(0, Metric(now, None, None, "system", {"cpu/load_1m": 12.0, "cpu/count": 2, "psi/cpu": 0.9}))
        now += int(8 * MS * chance.uniform(0.8, 1.6))
        if chance.random() < at_random:
            now += chance.randint(20, 300) * MS
        if every and step % every == every - 1:
            now += stall * MS
            if records and records != EACH:
                made.feed(0, Metric(now, step, None, None, {records: 1.0 + chance.random() / 10}))
        made.feed(0, Metric(now, step, None, None, {EACH: 1.0 + chance.random() / 10}))
        root = (10**6 + step).to_bytes(8, "big")
        made.feed(0, Span(began, now - began, step, None, bytes(16), root, None, "train.step"))
    return [each for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize(("every", "stall", "steps"), [(25, 120, 400), (130, 400, 1200), (400, 1500, 4000)])
def test_stalls_that_come_as_regularly_as_nothing_by_chance_does_are_named(every: int, stall: int, steps: int) -> None:
    """With their distance in steps, the first of them, and the share of the time that they cost."""
    (found,) = found_in(every, stall, steps)
    assert found.kind == "periodic_stall"
    assert (found.step or 0) % every == every - 1
    assert f"every {every} steps" in found.text


@pytest.mark.parametrize(("jitter", "kinds"), [(0.0, ["periodic_stall"]), (9.0, [])], ids=["by the clock", "at random"])
def test_stalls_each_so_many_seconds_are_named(jitter: float, kinds: list[str]) -> None:
    """A backup each twenty seconds comes at any step: steps of 20 to 60 ms, of which some are delayed anyway."""
    made, now, chance = Diagnosis(), 10**18, random.Random(9)
    due = now + 20_000 * MS
    for step in range(4000):
        began = now
        now += int(20 * MS * chance.uniform(1, 3)) + (chance.random() < 0.01) * chance.randint(60, 400) * MS
        if now >= due:
            now += chance.randint(1500, 2500) * MS
            due += int((20_000 + 1000 * chance.uniform(-jitter, jitter)) * MS)
        root = (10**6 + step).to_bytes(8, "big")
        made.feed(0, Span(began, now - began, step, None, bytes(16), root, None, "train.step"))
        if step % 50 == 0:
            made.feed(0, Metric(now, None, None, "system", {"cpu/load_1m": 12.0, "cpu/count": 2, "psi/cpu": 0.9}))
    found = [each for each in made.findings() if each.severity != "INFO"]
    assert [each.kind for each in found] == kinds
    assert all("by the clock" in each.cause and "every 2" in each.text for each in found)


def test_stalls_at_random_are_no_row() -> None:
    """However many there are: some of them are as far apart as others by chance."""
    assert found_in(0, 0, 6000, at_random=0.1) == []


@pytest.mark.parametrize("key", ["val/loss", "completions/mean_length"])
def test_what_is_recorded_only_there_says_what_is_done(key: str) -> None:
    """An evaluation, or samples that are written now and then; values that come at each step say nothing of it."""
    assert found_in(40, 150, 800, records=key) == []
    assert [each.kind for each in found_in(40, 150, 800, records=EACH)] == ["periodic_stall"]


def test_what_is_kept_of_a_run_is_bounded() -> None:
    """Stalls that are too short are forgotten first, and a row of long ones is found among them all the same."""
    found = found_in(200, 900, 3000, at_random=0.4)
    assert [each.kind for each in found] == ["periodic_stall"]
    watch = regular_stalls.RegularStalls(RunState())
    for step in range(3000):
        took = 0.008 + (step % 3 == 0) * step
        assert not [*watch.step(StepTimes(0, step, 10**18 + step * 10**10, took, {"train.step": took}))] or step > 64
    assert all(len(each._stalls) <= regular_stalls.KEPT for each in watch._names.values())


@pytest.mark.parametrize(("link", "kinds"), [(0.15, ["slow_span"]), (0.02, [])], ids=["more often", "as before"])
def test_a_span_that_stalls_more_often_than_before_and_than_others_is_named(link: float, kinds: list[str]) -> None:
    """From step 200 on the exchange comes late in such a share of the steps; the machine delays any span a little."""
    made, now, chance = Diagnosis(), 10**18, random.Random(5)
    for step in range(420):
        began, root = now, (10**6 + step).to_bytes(8, "big")
        for at, name in enumerate(("train.forward", "train.collective.all_reduce", "train.optimizer_step")):
            took = int(3 * MS * chance.uniform(0.8, 1.5)) + (chance.random() < 0.01) * chance.randint(20, 200) * MS
            if name.endswith("reduce") and step >= 200 and chance.random() < link:
                took += chance.randint(70, 150) * MS
            own = (step * 8 + at + 1).to_bytes(8, "big")
            made.feed(0, Span(now, took, step, None, bytes(16), own, root, name))
            now += took
        made.feed(0, Span(began, now - began, step, None, bytes(16), root, None, "train.step"))
        if step % 50 == 0:
            made.feed(0, Metric(now, None, None, "system", {"cpu/load_1m": 12.0, "cpu/count": 2, "psi/cpu": 0.9}))
    found = [each for each in made.findings() if each.severity != "INFO"]
    assert [each.kind for each in found] == kinds
    assert all(each.span == "train.collective.all_reduce" and 195 <= (each.step or 0) <= 220 for each in found)
