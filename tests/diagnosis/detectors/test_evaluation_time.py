"""Evaluations and checkpoints that take most of the time are named, and those that come now and then are left alone."""

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Span

MS = 10**6
STEP_MS = 40


def found_in(name: str, took: int, every: dict[int, int], parts: int = 1, steps: int = 400) -> list[Finding]:
    """Diagnose steps of 40 ms, and a span of so many parts and milliseconds at every so many steps, by first step."""
    made, now, number = Diagnosis(), 10**18, 0
    for step in range(steps):
        often, began = every[max(each for each in every if each <= step)], now
        root = (10**6 + step).to_bytes(8, "big")
        now += STEP_MS * MS
        for _ in range(parts if step % often == often - 1 else 0):
            number += 1
            made.feed(0, Span(now, took * MS // parts, step, None, bytes(16), number.to_bytes(8, "big"), root, name))
            now += took * MS // parts
        made.feed(0, Span(began, now - began, step, None, bytes(16), root, None, "train.step"))
    return [each for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize(("name", "word"), [("validation", "evaluated"), ("train.checkpoint.save", "saved")])
def test_what_comes_more_often_and_takes_most_of_the_time_is_named(name: str, word: str) -> None:
    """With the step since which it does, how often it came before, and its share."""
    (found,) = [each for each in found_in(name, 300, {0: 80, 200: 4}) if each.span == name]
    assert (found.kind, found.step) == ("periodic_stall", 203)
    assert "every 4 steps, every 80 before" in found.text
    assert "% of the time since step 203" in found.text
    assert word in found.cause


def test_what_takes_most_of_the_time_from_the_start_is_named() -> None:
    """It has no past to compare with; an evaluation in parts is one."""
    (found,) = found_in("evaluate", 500, {0: 10}, parts=5)
    assert (found.kind, found.step, "before" in found.text) == ("periodic_stall", 9, False)
    assert "56% of the time" in found.text


def test_evaluations_that_are_rare_or_come_at_once_are_left_alone() -> None:
    """A fifth of the time; a test of many parts at the end of a training; and what loads data, named like `eval`."""
    assert found_in("evaluate", 400, {0: 40}) == []
    assert found_in("test", 9000, {0: 399}, parts=100) == []
    assert [each.kind for each in found_in("data.retrieval", 300, {0: 4})] == ["input_bound"]


def test_short_steps_are_judged_by_all_that_was_lost() -> None:
    """Eight evaluations of 60 ms are nothing, and fifty are."""
    (found,) = found_in("train.evaluate", 320, {0: 5}, steps=100)
    assert found.kind == "periodic_stall"
    assert "every 5 steps" in found.text
