"""Starts that take long and restarts that cost time are remarks."""

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_STARTED, SPAN_STEP
from stepscope.model.records import Event, Span

SECOND = 10**9


def attempt(made: Diagnosis, number: int, start: int, first: int, steps: range) -> int:
    """An attempt that starts at a second and takes its first step at another, then one a second; return its end."""
    made.feed(0, Event(start * SECOND, None, None, None, None, 9, EVENT_STARTED, {}), number)
    for at, step in enumerate(steps):
        began = (first + at) * SECOND
        span = (1000 * number + step + 1).to_bytes(8, "big")
        made.feed(0, Span(began, SECOND - 1000, step, None, bytes(16), span, None, SPAN_STEP), number)
    return first + len(steps)


def remarks(made: Diagnosis) -> list[Finding]:
    """The findings, all of which must be remarks."""
    assert all(each.severity == "INFO" for each in made.findings())
    return made.findings()


@pytest.mark.parametrize(("first", "kinds"), [(400, ["slow_start"]), (120, [])], ids=["slow", "usual"])
def test_a_first_step_that_comes_late_is_a_remark(first: int, kinds: list[str]) -> None:
    """It says how long the start took, whatever was done in it."""
    made = Diagnosis()
    attempt(made, 1, 1, first, range(40))
    found = remarks(made)
    assert [each.kind for each in found] == kinds
    assert all("began 6m 39s after its start" in each.text for each in found)


def test_a_restart_says_what_it_cost() -> None:
    """From the last step to the first new one: the wait, the start, and the steps that are computed again."""
    made = Diagnosis()
    ended = attempt(made, 1, 1, 10, range(100))
    attempt(made, 2, ended + 60, ended + 90, range(60, 160))
    (found,) = remarks(made)
    assert (found.kind, found.step, found.attempt) == ("restart_cost", 100, 2)
    assert found.text.startswith("the restart after step 99 cost 2m 10s until step 100 began: 1m 00s until attempt 2")


def test_a_restart_that_continues_at_once_is_left_alone() -> None:
    """A few seconds are no loss."""
    made = Diagnosis()
    ended = attempt(made, 1, 1, 10, range(100))
    attempt(made, 2, ended + 5, ended + 10, range(100, 160))
    assert remarks(made) == []
