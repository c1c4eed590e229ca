"""Steps of which only some have their phases timed are judged by what they have."""

import random

import pytest

from stepscope.diagnosis.detector import RunState, StepTimes
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.diagnosis.timing import Timing
from stepscope.model.names import ATTR_SAMPLED
from stepscope.model.records import Attrs, Span

MS = 1_000_000
START = 1_790_000_000 * 10**9


def spans(steps: int, *, every: int, marked: bool, slow_from: int = 10**9) -> list[Span]:
    """A loop of 30 ms a step whose phases are timed in one step of `every`; later, backward takes 60 ms more."""
    noise = random.Random(1)
    attrs: Attrs = {ATTR_SAMPLED: every} if marked else {}
    found, now = [], START
    for step in range(steps):
        root, trace = step.to_bytes(8, "big"), step.to_bytes(16, "big")
        begun, is_timed = now, noise.randrange(every) == 0
        for at, name in enumerate(("train.forward", "train.backward", "train.optimizer_step"), 1):
            took = int((10 + noise.random() + (60 if step >= slow_from and at == 2 else 0)) * MS)
            if is_timed:
                place = bytes([at]) + root[1:]
                found.append(Span(now, took, step, None, trace, place, root, name, attrs=attrs))
            now += took
        found.append(Span(begun, now - begun, step, None, trace, root, None, "train.step"))
        now += MS // 10
    return found


def kinds(made: list[Span]) -> list[tuple[str, str | None]]:
    """The kinds of findings, and their spans."""
    diagnosis = Diagnosis()
    diagnosis.feed_many(0, made)
    return [(each.kind, each.span) for each in diagnosis.findings()]


@pytest.mark.parametrize("every", [2, 16])
def test_a_step_without_phases_is_no_slow_step(every: int) -> None:
    """The time of a step itself is compared only where its phases were timed."""
    assert kinds(spans(1500, every=every, marked=True)) == []


def test_the_own_time_of_a_step_without_phases_is_unknown() -> None:
    """It is left out from the first sampled span on; the step's whole time stays."""
    found: list[StepTimes] = []
    timing = Timing(RunState(), found.append, lambda row: None)
    for each in spans(200, every=4, marked=True):
        timing.take(0, each)
    timed = [each.step for each in found if "train.forward" in each.own]
    known = [each for each in found if each.step > timed[0]]
    assert [each.step for each in known if each.partial] == [each.step for each in known if not each.own]
    assert all("train.step" in each.own for each in known if not each.partial)
    assert len(found) == 200


def test_a_slowdown_is_named_from_the_steps_that_were_timed() -> None:
    """One phase that takes longer is found among the steps that have it."""
    assert ("throughput_loss", "train.backward") in kinds(spans(2000, every=4, marked=True, slow_from=1000))
