"""What is found in a run, and what is not: spikes, numbers that are none, KL, time lost, crashes, alerts."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stepscope.hub.questions.evidence import (
    Alarm,
    Course,
    Evidence,
    Failure,
    Finding,
    Pace,
    Process,
    SlowStep,
    Stretch,
    Work,
)
from stepscope.hub.questions.finding_rules import find, kl_target
from stepscope.hub.questions.slowness import slow_steps

MS = 1e6


def course(values: Sequence[float], key: str = "trainer/loss", rank: int = 0) -> Course:
    """A metric with one value for each step."""
    made = []
    for step, value in enumerate(values):
        good = math.isfinite(value)
        flags = 0 if good else 1 if math.isnan(value) else 2 if value > 0 else 4
        made.append(Stretch(step, value, step, value, step, int(good), int(not good), step, flags, step))
    return Course(key, rank, made)


def noisy(count: int, level: float = 1.0, noise: float = 0.05, seed: int = 0) -> list[float]:
    """A loss that falls and trembles."""
    draw = random.Random(seed)
    return [level * (0.2 + math.exp(-step / 60)) * (1 + draw.gauss(0, noise)) for step in range(count)]


def only(evidence: Evidence) -> Finding:
    """The one finding there is."""
    (found,) = find(evidence)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_an_ordinary_course_has_no_findings(seed: int) -> None:
    """Noise, decay, warm-up and steps of a schedule are no spikes."""
    draw = random.Random(seed)
    heavy = [math.exp(draw.gauss(0, 0.5)) for _ in range(400)]
    schedule = [min(1.0, step / 20) * (0.1 if step > 200 else 1.0) for step in range(400)]
    courses = [course(noisy(400, noise=0.15, seed=seed)), course(heavy, "grad_norm"), course(schedule, "lr")]
    assert find(Evidence(courses=courses)) == []


@pytest.mark.parametrize("at", [15, 100, 398, 399])
def test_a_spike_is_found_where_it_is(at: int) -> None:
    """Also in the last step, which has no steps behind it."""
    values = noisy(400)
    values[at] = 30.0
    found = only(Evidence(courses=[course(values)]))
    assert (found.kind, found.step, found.key, found.severity) == ("spike", at, "trainer/loss", "ERROR")
    assert f"at step {at}" in found.text


def test_a_value_that_falls_is_found_too() -> None:
    """A reward that collapses for three steps is one finding."""
    values = [100 + random.Random(1).gauss(0, 1) for _ in range(200)]
    values[90:93] = [1.0, 2.0, 3.0]
    found = only(Evidence(courses=[course(values, "actor/reward_mean")]))
    assert (found.step, found.first, found.last) == (90, 90, 92)
    assert "fell to 1" in found.text


def test_metrics_that_spike_together_are_one_finding_of_the_rank_that_is_ahead() -> None:
    """The loss gives the name; what is equal on all ranks does not hide who it was."""
    courses = []
    for rank in range(4):
        loss, norm = noisy(200, seed=rank), noisy(200, seed=9)
        norm[120] = 80.0
        if rank == 2:
            loss[120] = 40.0
        courses += [course(loss, rank=rank), course(norm, "trainer/grad_norm", rank)]
    found = only(Evidence(courses=courses))
    assert (found.key, found.also, found.step, found.rank) == ("trainer/loss", ("trainer/grad_norm",), 120, 2)


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_a_number_that_is_none_is_found(value: float, word: str) -> None:
    """With what it was, and on which rank."""
    values = noisy(50)
    values[3] = value
    found = only(Evidence(courses=[course(noisy(50), rank=0), course(values, rank=1)]))
    assert (found.kind, found.step, found.rank) == ("not_finite", 3, 1)
    assert f"was {word} at step 3" in found.text


def test_a_kl_over_its_band_is_found_and_one_within_its_target_is_not() -> None:
    """The band is six times the median, and never below twice the target."""
    values = [0.005 + 0.002 * (step % 3) for step in range(100)]
    values[60] = 0.9
    found = only(Evidence(courses=[course(values, "trainer/approx_kl")]))
    assert (found.kind, found.step, found.key) == ("kl", 60, "trainer/approx_kl")
    assert find(Evidence(courses=[course(values, "trainer/approx_kl")], kl_target=0.5)) == []
    assert kl_target({"algorithm": {"target_kl": 0.02}}) == 0.02
    assert kl_target({"kl": 3}) is None


def work(own: Callable[[str, int], float]) -> list[Work]:
    """What four ranks did in a step; waiting is usually short."""
    usual = {"data_load": 3 * MS, "forward": 8 * MS, "exchange": 2 * MS}
    return [Work(name, rank, own(name, rank), usual[name]) for name in usual for rank in range(4)]


def test_who_waited_is_not_blamed_for_a_slow_step() -> None:
    """All but one rank wait long in the exchange; the one that loaded long is named."""
    lasts = {"data_load": 3 * MS, "forward": 8 * MS, "exchange": 400 * MS}

    def own(name: str, rank: int) -> float:
        return (403 if name == "data_load" else 2) * MS if rank == 1 and name != "forward" else lasts[name]

    found = only(Evidence(slow=[SlowStep(130, 1, 420 * MS, 15 * MS, work(own))]))
    assert (found.kind, found.step, found.rank, found.span) == ("slow_step", 130, 1, "data_load")
    assert "data_load on rank 1 had 403 ms self time (usually 3 ms)" in found.text


def test_a_step_that_is_slow_everywhere_blames_the_span_and_no_rank() -> None:
    """When a disk is slow, it is slow for all."""
    found = only(
        Evidence(slow=[SlowStep(7, 1, 420 * MS, 15 * MS, work(lambda name, _: 400 * MS * (name == "data_load")))])
    )
    assert (found.rank, found.span) == (None, "data_load")


def test_of_two_ranks_the_one_that_waits_is_known_by_the_name_of_its_span() -> None:
    """With two, each is the only one that is long in something."""
    lasts = {("forward", 0): 400, ("forward", 1): 8, ("all_reduce", 0): 1, ("all_reduce", 1): 393}
    works = [Work(name, rank, own * MS, 5 * MS) for (name, rank), own in lasts.items()]
    found = only(Evidence(slow=[SlowStep(7, 1, 402 * MS, 15 * MS, works)]))
    assert (found.rank, found.span) == (0, "forward")


def test_ranks_that_wait_for_one_that_comes_late_from_elsewhere_are_not_blamed() -> None:
    """The late rank waits for nobody; what held it up is in another step."""
    works = work(lambda name, rank: (2 if rank == 0 else 300) * MS if name == "exchange" else 8 * MS)
    assert find(Evidence(slow=[SlowStep(7, 1, 320 * MS, 15 * MS, works)])) == []


def test_a_span_that_only_one_rank_has_is_blamed_on_it() -> None:
    """An evaluation that took three times as long as ever."""
    works = [*work(lambda name, _: 3 * MS), Work("evaluate", 0, 300 * MS, 100 * MS)]
    found = only(Evidence(slow=[SlowStep(50, 1, 320 * MS, 15 * MS, works)]))
    assert (found.rank, found.span) == (0, "evaluate")


def test_a_step_with_a_checkpoint_is_not_slow() -> None:
    """A span that always takes long is no surprise."""
    works = [*work(lambda name, _: 3 * MS), Work("checkpoint", 0, 300 * MS, 290 * MS)]
    assert find(Evidence(slow=[SlowStep(50, 1, 310 * MS, 15 * MS, works)])) == []


def test_slow_steps_are_chosen_against_the_others() -> None:
    """Twice the usual, far outside its spread, and never the first of an attempt."""
    durations = [(step, 20 * MS + (step % 5) * MS) for step in range(100)]
    durations[0], durations[40] = (0, 900 * MS), (40, 300 * MS)
    assert [step for step, _ in slow_steps(durations, frozenset([0]))] == [40]
    assert slow_steps(durations[:3]) == []


def paces(slow: range, times: float, name: str = "backward") -> list[Pace]:
    """A span on four ranks in 24 stretches of ten steps; rank 2 takes so many times as long in some."""
    return [
        Pace(name, rank, stretch * 10, stretch * 10 + 9, 10, 10 * MS * (times if rank == 2 and stretch in slow else 1))
        for stretch in range(24)
        for rank in range(4)
    ]


def test_a_straggler_is_found_with_its_steps() -> None:
    """A rank that is slow for a third of the run."""
    steps = [Pace("train.step", rank, 0, 239, 240, 40 * MS) for rank in range(4)]
    found = only(Evidence(paces=[*paces(range(8, 16), 2.0), *steps]))
    assert (found.kind, found.rank, found.span) == ("straggler", 2, "backward")
    assert (found.first, found.last) == (80, 159)


@pytest.mark.parametrize(("slow", "times", "name"), [(range(24), 1.2, "backward"), (range(3, 5), 3.0, "backward"),
                                                    (range(24), 3.0, "all_reduce")])  # fmt: skip
def test_what_is_no_straggler(slow: range, times: float, name: str) -> None:
    """A little slower, slow for a moment, or long in waiting for others."""
    assert find(Evidence(paces=paces(slow, times, name))) == []


def test_a_rank_that_died_is_told_from_those_that_noticed() -> None:
    """Who says nothing is dead; who says that another is gone is not to blame."""
    ends: list[str | None] = ["failed", None, "failed"]
    evidence = Evidence(
        processes=[
            *(Process(1, rank, 160 + rank, said) for rank, said in enumerate(ends)),
            *(Process(2, rank, 399, "finished") for rank in range(3)),
        ],
        first_steps={1: 0, 2: 150},
        failures=[Failure(5, 1, 0, 161, "PeerLost: rank 1 is gone")],
    )
    found = only(evidence)
    assert (found.kind, found.severity, found.rank, found.step, found.attempt) == ("crash", "FATAL", 1, 161, 1)
    assert "attempt 2 resumed at step 150, 12 steps were done again" in found.text


def test_an_exception_that_ends_a_run_is_a_crash_and_one_that_does_not_is_an_error() -> None:
    """A run that goes on has errors."""
    failure = Failure(5, 1, 0, 7, "ValueError: bad")
    ended = Evidence(processes=[Process(1, 0, 7, "failed")], failures=[failure], state="failed")
    assert only(ended).text == "attempt 1 crashed at step 7: rank 0 failed with ValueError: bad"
    alive = Evidence(processes=[Process(1, 0, 9, None)], failures=[failure], state="running")
    assert (only(alive).kind, only(alive).text) == ("error", "ValueError: bad at step 7 on rank 0")


def test_metrics_that_were_bad_at_other_steps_have_findings_of_their_own() -> None:
    """Nothing is said of one that is true of another only, and each leads to its own step."""
    loss, neg = noisy(40), noisy(40)
    loss[20] = math.nan
    neg[3:] = [-math.inf] * 37
    found = {each.key: each for each in find(Evidence(courses=[course(loss), course(neg, "trainer/neg")]))}
    assert found["trainer/loss"].text == "trainer/loss was NaN at step 20"
    assert found["trainer/neg"].text == "trainer/neg was -Infinity in steps 3 to 39"
    assert [(each.step, each.first, each.last) for each in found.values()] == [(3, 3, 39), (20, 20, 20)]


def test_metrics_that_were_bad_at_the_same_steps_are_one_finding() -> None:
    """Also over ranks, with the one on which it began; but not where one was NaN and the other infinite."""
    late, early = [1.0] * 5 + [math.nan] * 35, [1.0] * 3 + [math.nan] * 37
    keys = ("trainer/loss", "trainer/norm")
    courses = [course(values, key, rank) for key in keys for rank, values in enumerate((late, early))]
    found = only(Evidence(courses=courses))
    assert found.text == "trainer/loss was NaN in steps 3 to 39 on all ranks, first on rank 1; trainer/norm too"
    other = [1.0] * 3 + [math.inf] * 37
    assert len(find(Evidence(courses=[course(early), course(other, "trainer/norm")]))) == 2


def test_values_between_that_are_finite_are_not_called_bad() -> None:
    """Those that were bad are counted; a stretch of many steps says where its last one was."""
    found = only(Evidence(courses=[course([math.nan if step % 2 else 1.0 for step in range(40)])]))
    assert found.text == "trainer/loss was NaN 20 times in steps 1 to 39"
    stretches = [Stretch(0, 1.0, 0, 1.0, 0, 10, 0), Stretch(10, 1.0, 10, 1.0, 10, 7, 3, 12, 1, 14)]
    assert only(Evidence(courses=[Course("loss", 0, stretches)])).text == "loss was NaN in steps 12 to 14"


def alarm(name: str, step: int | None, message: str = "", severity: int = 17, **about: Any) -> Alarm:
    """An alert that was raised once, on rank 0."""
    fields = {"attempt": 1, "count": 1, "time": step or 0, "ranks": (0,), **about}
    return Alarm(name=name, step=step, severity=severity, message=message, **fields)


def test_alerts_are_findings_by_their_names() -> None:
    """How often, from which step to which, how severe, and what the worst of them said; a step is not needed."""
    many = [alarm("mine", step, f"no. {step}", 13 if step < 50 else 17) for step in range(700)]
    full = alarm("disk", None, "no space left\non /data", 21, count=3, ranks=(0, 1))
    both = [Process(1, rank, 699, "finished") for rank in range(2)]
    first, second = find(Evidence(alarms=[*many, full], processes=both))
    assert (first.kind, first.severity, first.step, first.ranks) == ("alert", "FATAL", None, (0, 1))
    assert first.text == "alert disk: no space left on /data, 3 times on all ranks"
    assert (second.severity, second.step, second.first, second.last, second.rank) == ("ERROR", 50, 0, 699, 0)
    assert second.text == "alert mine: no. 50, 700 times in steps 0 to 699 on rank 0"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (alarm("not a number", 20, "see the log"), True),
        (alarm("watch", 21, "trainer/loss is off"), True),
        (alarm("Grad-Norm", 20), True),
        (alarm("disk full", 20), False),
        (alarm("flossing", 20), False),
        (alarm("nan", 30, "trainer/loss is NaN"), False),
        (alarm("nan", None, "trainer/loss is NaN"), False),
    ],
)
def test_an_alert_about_what_is_found_anyway_is_not_told_twice(said: Alarm, told: bool) -> None:
    """It is about the same when it is beside it in steps and names the metric, or what befell it."""
    loss, norm = noisy(40), noisy(40)
    loss[20] = norm[20] = math.nan
    courses = [course(loss), course(norm, "trainer/grad_norm")]
    found = find(Evidence(courses=courses, alarms=[said]))
    assert [each.kind for each in found] == (["not_finite"] if told else ["alert", "not_finite"])


def test_an_alert_in_another_attempt_is_told() -> None:
    """What went slow in one attempt says nothing of another; a warning comes after what was found."""
    slow = SlowStep(7, 2, 420 * MS, 15 * MS, work(lambda name, _: 400 * MS * (name == "data_load")))
    told = find(Evidence(slow=[slow], alarms=[alarm("slow step", 7, severity=13, attempt=2)]))
    assert [each.kind for each in told] == ["slow_step"]
    other = find(Evidence(slow=[slow], alarms=[alarm("slow step", 7, severity=13)]))
    assert [each.kind for each in other] == ["slow_step", "alert"]
    assert other[1].attempt == 1
