"""How attempts end: deaths, crashes, and failures that the run survives."""

from typing import Any

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model import names
from stepscope.model.records import Event, Metric, Span

SECOND = 1_000_000_000


def event(time: int, name: str, step: int | None = None, **attrs: Any) -> Event:
    """An event at a second."""
    return Event(time * SECOND, step, None, None, None, 9, name, attrs)


def raised(time: int, step: int | None, kind: str, message: str) -> Event:
    """An exception."""
    return event(time, names.EVENT_EXCEPTION, step, **{"exception.type": kind, "exception.message": message})


def ended(time: int, status: str) -> Event:
    """The exit record of a process."""
    return event(time, names.EVENT_FINISHED, status=status)


def steps(made: Diagnosis, rank: int, first: int, last: int, attempt: int = 1) -> None:
    """A rank logs some steps, one a second."""
    for step in range(first, last + 1):
        made.feed(rank, Metric(step * SECOND, step, None, None, {"x": 1.0}), attempt)


def failed_span(time: int, step: int, name: str, message: str, id: int) -> Span:
    """A span that failed."""
    return Span(time * SECOND, 1000, step, None, bytes(16), id.to_bytes(8, "big"), None, name, 0, 2, message)


def only(made: Diagnosis) -> Finding:
    """The one finding there is."""
    (found,) = made.findings()
    return found


def test_a_rank_that_died_is_told_from_those_that_noticed() -> None:
    """The rank without an exit record is named; what the others raised is a symptom, and the restart is reported."""
    made = Diagnosis(world=3)
    for rank in range(3):
        steps(made, rank, 0, 160 + rank)
    made.feed(0, raised(170, 160, "PeerLost", "rank 1 is gone"))
    for rank in (0, 2):
        made.feed(rank, ended(171, "failed"))
    made.died(1, 172 * SECOND)
    for rank in range(3):
        steps(made, rank, 150, 399, attempt=2)
        made.feed(rank, ended(400, "finished"), 2)
    found = only(made)
    assert (found.kind, found.severity, found.ranks, found.step, found.attempt) == ("dead_rank", "FATAL", (1,), 161, 1)
    assert "attempt 2 resumed at step 150, 12 steps were repeated" in found.text
    assert found.symptoms == ("PeerLost: rank 1 is gone on rank 0",)


def test_a_rank_may_die_in_each_attempt() -> None:
    """A death in a later attempt is a finding of its own, although the same rank died before."""
    made = Diagnosis(world=2)
    for attempt in (1, 2):
        for rank in range(2):
            steps(made, rank, 0, 50, attempt)
        made.died(1, 60 * SECOND, attempt)
    assert [(each.kind, each.attempt) for each in made.findings()] == [("dead_rank", 1), ("dead_rank", 2)]


def test_ranks_that_die_together_are_one_finding() -> None:
    """A machine that goes takes all of its ranks with it."""
    made = Diagnosis(world=2)
    for rank in range(2):
        steps(made, rank, 0, 20)
        made.died(rank, 30 * SECOND)
    found = only(made)
    assert (found.ranks, found.text) == ((0, 1), "every rank died without an exit record at step 20")


def test_an_exit_record_that_comes_late_takes_the_death_back() -> None:
    """A process that is gone while its last records are still on their way has not died silently."""
    made = Diagnosis()
    steps(made, 0, 0, 5)
    made.died(0, 6 * SECOND)
    made.feed(0, ended(5, "finished"))
    assert made.findings() == []


def test_an_exception_that_ends_an_attempt_is_a_crash_and_one_that_does_not_is_an_error() -> None:
    """Failures that the run survives are errors."""
    made = Diagnosis()
    steps(made, 0, 0, 7)
    made.feed(0, raised(8, 7, "builtins.ValueError", "bad"))
    assert (only(made).kind, only(made).text) == ("error", "ValueError: bad at step 7")
    made.feed(0, ended(9, "failed"))
    assert (only(made).kind, only(made).text) == ("crash", "rank 0 ended at step 7 with ValueError: bad")


def test_every_failure_is_counted() -> None:
    """Failures that differ in numbers only are one finding, with the count of all of them and their steps."""
    made = Diagnosis()
    for step in range(775):
        made.feed(0, failed_span(step, step, "env.step", f"timeout after {step} ms", step + 1))
    found = only(made)
    assert found.text == "env.step failed: timeout after 0 ms at step 0, 775 times in all"
    assert (found.step, found.last) == (0, 774)


def test_a_span_that_failed_by_an_exception_is_told_once() -> None:
    """The exception is the finding, not the spans it went through."""
    made = Diagnosis()
    made.feed(0, failed_span(3, 3, "train.backward", "boom", 1))
    made.feed(0, raised(3, 3, "RuntimeError", "boom"))
    assert only(made).text == "RuntimeError: boom at step 3"
