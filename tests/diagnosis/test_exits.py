"""How attempts end: deaths, crashes, and failures that the run survives."""

from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model import names
from stepscope.model.records import Event, Log, Metric, Span

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


def uncaught(time: int, step: int, kind: str, message: str) -> Event:
    """The exception that ended a process."""
    attrs = {"exception.type": kind, "exception.message": message, "uncaught": True}
    return Event(time * SECOND, step, None, None, None, 21, names.EVENT_EXCEPTION, attrs)


def exited(time: float, signal: str) -> Event:
    """What was seen of the end of a process from outside of it."""
    return Event(int(time * SECOND), None, None, None, None, 9, names.EVENT_EXITED, {"signal": signal})


def four() -> Diagnosis:
    """Four ranks that have taken 100 steps."""
    made = Diagnosis(world=4)
    for rank in range(4):
        steps(made, rank, 0, 99)
    return made


def test_the_exception_that_came_first_is_not_replaced_by_what_the_launcher_did_then() -> None:
    """Ranks that the launcher killed after another ran out of memory are a consequence, whenever they are seen."""
    made = four()
    made.feed(2, uncaught(100, 100, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB"))
    made.feed(2, ended(100, "failed"))
    before = only(made)
    for rank in (0, 1, 3):
        made.died(rank, (103 + rank) * SECOND)
    after = only(made)
    assert before.identity == after.identity
    assert (after.kind, after.ranks, after.step) == ("crash", (2,), 100)
    assert "out of memory" in after.text.lower()
    assert after.cause == "the memory of the GPU is full"
    assert after.symptoms == ("ranks 0, 1, 3 died without an exit record afterwards",)


def test_a_killed_rank_is_told_from_those_that_the_launcher_ended() -> None:
    """The rank that got SIGKILL is the root; those that got SIGTERM are a consequence, in whatever order they come."""
    made = four()
    for rank in (0, 1, 3):
        made.feed(rank, exited(100.4, "SIGTERM"))
        made.died(rank, 100 * SECOND)
    made.feed(2, exited(100.1, "SIGKILL"))
    made.died(2, 99 * SECOND)
    found = only(made)
    assert (found.kind, found.ranks) == ("dead_rank", (2,))
    assert found.text.startswith("rank 2 was killed by SIGKILL at step 99")
    assert found.symptoms == ("ranks 0, 1, 3 were ended by SIGTERM afterwards",)


def test_an_exception_about_the_connection_is_a_consequence() -> None:
    """Ranks that lose their connection to a killed one raise; the killed one is the root, even without a signal."""
    made = four()
    text = "[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242"
    for rank in (0, 1, 3):
        made.feed(rank, uncaught(100, 100, "RuntimeError", text))
        made.feed(rank, ended(101, "failed"))
    assert (only(made).kind, only(made).ranks) == ("crash", (0,))
    made.died(2, 99 * SECOND)
    found = only(made)
    assert (found.kind, found.ranks) == ("dead_rank", (2,))
    assert found.symptoms == (f"RuntimeError: {text} on ranks 0, 1, 3",)


def test_a_job_that_was_ended_from_outside_says_so() -> None:
    """Without a root of its own, a run that got SIGTERM on every rank was ended by its scheduler or launcher."""
    made = four()
    for rank in range(4):
        made.feed(rank, exited(100 + rank / 10, "SIGTERM"))
        made.died(rank, 99 * SECOND)
    found = only(made)
    assert (found.kind, found.severity, found.ranks) == ("dead_rank", "ERROR", (0, 1, 2, 3))
    assert found.text.startswith("every rank was ended by SIGTERM at step 99")
    assert "scheduler" in found.cause


def test_a_handled_exception_is_not_blamed_for_a_later_crash() -> None:
    """The exception that ended the process counts, not one that another rank caught long before."""
    made = four()
    made.feed(0, raised(10, 10, "OSError", "retry"))
    made.feed(3, uncaught(100, 99, "ValueError", "bad token"))
    made.feed(3, ended(100, "failed"))
    crash = next(each for each in made.findings() if each.kind == "crash")
    assert (crash.ranks, crash.text) == ((3,), "rank 3 ended at step 99 with ValueError: bad token")


def spans(made: Diagnosis) -> None:
    """Four ranks that take 40 steps of a tenth of a second, with spans."""
    for step in range(40):
        for rank in range(4):
            id = bytes([rank + 1]) + step.to_bytes(7, "big")
            made.feed(rank, Span(step * SECOND // 10, SECOND // 11, step, None, bytes(16), id, None, "train.step"))


def beat(made: Diagnosis, rank: int, time: int) -> None:
    """A heartbeat."""
    made.feed(rank, Metric(time * SECOND, None, None, "stepscope", {"beats": 1}))


def stuck(made: Diagnosis, rank: int, name: str) -> None:
    """A rank reports that it has been in a span for a while."""
    made.feed(rank, Span(4 * SECOND, None, 40, None, bytes(16), bytes([9, rank]) * 4, None, name))


def test_a_hang_is_not_swallowed_by_the_deaths_that_ended_it() -> None:
    """Ranks that are killed because they hung are a consequence of the hang."""
    made = Diagnosis(world=4)
    spans(made)
    for rank in range(4):
        stuck(made, rank, "train.data_load" if rank == 2 else "all_reduce")
        beat(made, rank, 30)
    made.tick(31 * SECOND)
    assert only(made).kind == "hang"
    for rank in range(4):
        made.died(rank, 60 * SECOND)
    found = only(made)
    assert (found.kind, found.ranks) == ("hang", (2,))
    assert found.symptoms == ("every rank died without an exit record at step 40",)


def test_a_rank_that_was_stopped_steps_before_the_hang_is_its_cause_not_its_death() -> None:
    """The last step of the stopped rank may be some steps back: its records were not written when it was stopped."""
    made = Diagnosis(world=4)
    for step in range(40):
        for rank in range(4):
            id = bytes([rank + 1]) + step.to_bytes(7, "big")
            if rank != 2 or step < 34:
                made.feed(rank, Span(step * SECOND // 10, SECOND // 11, step, None, bytes(16), id, None, "train.step"))
    for rank in (0, 1, 3):
        stuck(made, rank, "all_reduce")
        beat(made, rank, 14)
    made.tick(15 * SECOND)
    made.feed(2, exited(40, "SIGKILL"))
    found = only(made)
    assert (found.kind, found.ranks) == ("hang", (2,))
    assert found.symptoms == ("rank 2 was killed by SIGKILL at step 33",)


def test_a_stopped_rank_that_nobody_saw_end_is_not_dead_before_the_hang() -> None:
    """Its last record is from when it was stopped; the others lived on, so the hang came before the deaths."""
    made = Diagnosis(world=4)
    spans(made)
    for rank in (0, 1, 3):
        stuck(made, rank, "all_reduce")
        beat(made, rank, 30)
    made.tick(31 * SECOND)
    for rank in range(4):
        made.died(rank, (4 if rank == 2 else 60) * SECOND)
    found = only(made)
    assert (found.kind, found.ranks) == ("hang", (2,))


def test_a_hang_is_found_from_the_records_alone() -> None:
    """Heartbeats without progress are a hang also where nobody watched the clock, as when a run is replayed."""
    made = Diagnosis(world=4)
    spans(made)
    for rank in range(4):
        stuck(made, rank, "train.data_load" if rank == 2 else "all_reduce")
    for time in (9, 14, 19):
        for rank in range(4):
            beat(made, rank, time)
    assert (only(made).kind, only(made).ranks) == ("hang", (2,))


def test_the_wait_for_a_killed_rank_is_not_a_hang() -> None:
    """Ranks that wait for one that was killed are a consequence of its death."""
    made = Diagnosis(world=4)
    spans(made)
    for rank in (0, 1, 3):
        stuck(made, rank, "all_reduce")
        beat(made, rank, 14)
    made.tick(15 * SECOND)
    made.died(2, 4 * SECOND)
    found = only(made)
    assert (found.kind, found.ranks) == ("dead_rank", (2,))


def printed(time: int, text: str) -> Log:
    """A line that a process printed."""
    return Log(time * SECOND, None, None, None, None, 9, text, {"log.iostream": "stderr"}, "console.stderr")


def test_what_a_process_printed_before_it_was_killed_is_its_cause() -> None:
    """The class of the line decides the cause; lines about lost connections do not."""
    made = four()
    made.feed(2, printed(98, "step 98 loss 0.3"))
    made.feed(2, printed(99, "terminate called after throwing an instance of 'c10::Error'"))
    made.feed(2, printed(99, "Connection closed by peer"))
    made.feed(2, exited(100, "SIGABRT"))
    made.died(2, 99 * SECOND)
    found = only(made)
    assert found.text == (
        "rank 2 was killed by SIGABRT at step 99, after it printed: "
        "terminate called after throwing an instance of 'c10::Error'"
    )
    assert found.cause == "native code crashed"


def test_the_kernel_confirms_why_a_process_was_killed() -> None:
    """A process that was killed while its control group ran out of memory was killed for that."""
    made = four()
    attrs = {"signal": "SIGKILL", "oom_kill": True}
    made.feed(2, Event(100 * SECOND, None, None, None, None, 9, names.EVENT_EXITED, attrs))
    assert "out of memory" in only(made).cause


def test_the_first_of_ends_that_were_seen_is_the_root() -> None:
    """Where nobody could read the signals, the process that was seen to end first is the root."""
    made = four()
    for rank, time in ((0, 100.5), (2, 100.1), (3, 100.6)):
        made.feed(rank, exited(time, ""))
        made.died(rank, 99 * SECOND)
    assert only(made).ranks == (2,)


def test_restarts_without_progress_are_named() -> None:
    """A run that is started again and again, and never comes further, says so with the number of attempts."""
    made = Diagnosis()
    for attempt in range(1, 5):
        made.feed(0, event(100 * attempt, names.EVENT_STARTED), attempt)
        for step in range(50, 60):
            made.feed(0, Metric((100 * attempt + step) * SECOND, step, None, None, {"x": 1.0}), attempt)
        made.died(0, (100 * attempt + 60) * SECOND, attempt)
    (found,) = [each for each in made.findings() if each.kind == "no_progress"]
    assert (found.step, found.attempt) == (59, 4)
    assert found.text == "3 restarts have come no further than step 59"


def test_restarts_that_make_progress_are_not_stuck() -> None:
    """Each attempt gets further than the one before."""
    made = Diagnosis()
    for attempt in range(1, 5):
        made.feed(0, event(10_000 * attempt, names.EVENT_STARTED), attempt)
        for step in range(50 * attempt, 50 * attempt + 60):
            made.feed(0, Metric((10_000 * attempt + step) * SECOND, step, None, None, {"x": 1.0}), attempt)
        made.died(0, (10_000 * attempt + 1000) * SECOND, attempt)
    assert {each.kind for each in made.findings()} == {"dead_rank"}


def test_many_restarts_in_a_short_time_are_a_storm() -> None:
    """Five failed attempts within half an hour are worth a look, whether they come further or not."""
    made = Diagnosis()
    for attempt in range(1, 7):
        made.feed(0, event(100 * attempt, names.EVENT_STARTED), attempt)
        for step in range(50 * attempt, 50 * attempt + 50):
            made.feed(0, Metric((100 * attempt + step // 50) * SECOND, step, None, None, {"x": 1.0}), attempt)
        if attempt < 6:
            made.died(0, (100 * attempt + 60) * SECOND, attempt)
    (found,) = [each for each in made.findings() if each.kind == "restart_storm"]
    assert found.text == "5 attempts that failed were started within 6m 40s"


def test_preempted_attempts_are_no_storm() -> None:
    """Many short attempts are normal where each is ended in order."""
    made = Diagnosis()
    for attempt in range(1, 9):
        made.feed(0, event(100 * attempt, names.EVENT_STARTED), attempt)
        for step in range(50 * attempt, 50 * attempt + 50):
            made.feed(0, Metric((100 * attempt + step // 50) * SECOND, step, None, None, {"x": 1.0}), attempt)
        made.feed(0, ended(100 * attempt + 60, "preempted"), attempt)
    assert made.findings() == []


def test_a_job_that_was_ended_at_its_time_limit_says_so() -> None:
    """Slurm tells each process when its job ends; SIGTERM near that time is the limit."""
    made = Diagnosis(world=2)
    for rank in range(2):
        made.feed(rank, event(1, names.EVENT_STARTED, **{"slurm.job_end_time": "130"}))
        steps(made, rank, 2, 99)
        made.feed(rank, exited(100, "SIGTERM"))
    found = only(made)
    assert found.text.startswith(
        "every rank was ended by SIGTERM at step 99, when the time limit of the job was reached"
    )
    assert found.cause == "the time limit of the job was reached"


@pytest.mark.parametrize(("bad", "named"), [({1: 2, 2: 3, 3: 2}, ["host1"]), ({1: 0, 2: 2, 3: 1}, [])])
def test_a_machine_that_fails_first_in_each_attempt_is_suspect(bad: dict[int, int], named: list[str]) -> None:
    """Two ranks on each of two machines: the one is named whose ranks failed first, if it is always the same."""
    made = Diagnosis(world=4)
    for attempt in range(1, 4):
        start = 10_000 * attempt
        for rank in range(4):
            made.feed(rank, event(start, names.EVENT_STARTED), attempt, f"host{rank // 2}")
        for step in range(60 * attempt, 60 * attempt + 50):
            for rank in range(4):
                made.feed(
                    rank, Metric((start + step) * SECOND, step, None, None, {"x": 1.0}), attempt, f"host{rank // 2}"
                )
        rank = bad[attempt]
        made.feed(rank, raised(start + 600, None, "RuntimeError", "CUDA error"), attempt, f"host{rank // 2}")
        made.feed(rank, ended(start + 600, "failed"), attempt, f"host{rank // 2}")
    found = [each for each in made.findings() if each.kind == "suspect_host"]
    assert [each.text for each in found] == [f"3 of 3 attempts failed first on {host} (ranks 2, 3)" for host in named]
