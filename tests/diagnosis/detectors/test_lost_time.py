"""Lost time: judged by what it costs, against the jitter of the run and the load of its machine."""

import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

START = 1_700_000_000 * 10**9
Spans = Callable[[int, random.Random], dict[str, float]]
Logs = Callable[[int, random.Random], dict[str, float]]


def found_in(
    spans: Spans,
    steps: int = 400,
    seed: int = 0,
    logs: Logs | None = None,
    load: float = 0.5,
    readings: dict[str, float] | None = None,
) -> list[Finding]:
    """Diagnose a run whose steps have these spans, in seconds, on a machine of two CPUs with a load."""
    diagnosis, rng, clock = Diagnosis(), random.Random(seed), START
    for step in range(steps):
        begun = clock
        values = logs(step, rng) if logs is not None else {}
        for name, took in spans(step, rng).items():
            diagnosis.feed(0, Span(clock, int(took * 1e9), step, None, b"t" * 16, rng.randbytes(8), b"root" * 2, name))
            clock += int(took * 1e9)
        if values:
            diagnosis.feed(0, Metric(clock, step, None, None, values))
        diagnosis.feed(0, Span(begun, clock - begun, step, None, b"t" * 16, b"root" * 2, None, "train.step"))
        if step % 20 == 0:
            machine = {"cpu/load_1m": load, "cpu/count": 2.0} | (readings or {})
            diagnosis.feed(0, Metric(clock, None, None, "system", machine))
    return diagnosis.findings()


def loud(found: list[Finding]) -> list[Finding]:
    """Findings above INFO."""
    return [each for each in found if each.severity != "INFO"]


def usual(step: int, rng: random.Random, jitter: float = 0.05) -> dict[str, float]:
    """A step of 13 ms."""
    return {
        "train.data_load": 0.001 * rng.lognormvariate(0, jitter),
        "train.forward": 0.005 * rng.lognormvariate(0, jitter),
        "train.backward": 0.007 * rng.lognormvariate(0, jitter),
    }


def test_slow_loading_is_one_finding_with_its_cause() -> None:
    """Loading that takes 60 ms more from a step on is one finding that names the span and the step."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        times = usual(step, rng)
        times["train.data_load"] += 0.06 if step >= 250 else 0.0
        return times

    found = found_in(spans)
    assert [(each.kind, each.span) for each in found] == [("data_stall", "train.data_load")]
    assert abs((found[0].step or 0) - 250) <= 2
    assert "the loop waits for data" in found[0].cause


def test_a_slower_span_is_named() -> None:
    """A slowdown names the span behind it."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        times = usual(step, rng)
        times["train.backward"] *= 2.0 if step >= 200 else 1.0
        return times

    found = loud(found_in(spans))
    assert [(each.kind, each.span) for each in found] == [("throughput_loss", "train.backward")]
    assert "train.backward went from" in found[0].text


@pytest.mark.parametrize("spanned", [True, False], ids=["in a span", "without a span"])
def test_an_evaluation_inside_the_step_is_explained(spanned: bool) -> None:
    """An evaluation every 50 steps is no fault, whether a span or only a held-out metric says what it is."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        times = usual(step, rng)
        if step % 50 == 49:
            times["train.evaluate" if spanned else "train.forward"] = 0.4
        return times

    def logs(step: int, rng: random.Random) -> dict[str, float]:
        return {"val/loss": rng.uniform(1.0, 1.1)} if step % 50 == 49 else {"lr": 1e-3}

    assert loud(found_in(spans, 600, logs=logs)) == []


def test_work_at_a_fixed_interval_is_a_remark_unless_it_costs_much() -> None:
    """Four percent of the time at a fixed interval are a remark with their share; a third of it is a fault."""

    def spans(extra: float, every: int) -> Spans:
        def times(step: int, rng: random.Random) -> dict[str, float]:
            return {**usual(step, rng), "train.hook": 0.001 + (extra if step % every == every - 1 else 0.0)}

        return times

    cheap, costly = found_in(spans(0.06, 120), 900), found_in(spans(0.3, 40), 600)
    assert [(each.kind, each.severity) for each in cheap] == [("periodic_stall", "INFO")]
    assert [each.kind for each in loud(costly)] == ["periodic_stall"]
    assert "of the time" in costly[0].text


def test_a_busy_machine_is_reported_once_as_the_machine() -> None:
    """Slower and jittery steps while the machine is busy are one remark, not faults of the training."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        slow = 2.0 if step >= 200 else 1.0
        times = {name: slow * took for name, took in usual(step, rng, 0.3).items()}
        if rng.random() < 0.02:
            times["train.forward"] += rng.uniform(0.05, 0.4)
        return times

    found = found_in(spans, load=9.0)
    assert loud(found) == []
    assert [each.kind for each in found] in (["busy_machine"], [])


def test_a_real_stall_on_a_busy_machine_is_named() -> None:
    """A busy machine does not hide a stall of seconds."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        times = usual(step, rng, 0.3)
        times["train.data_load"] += 4.0 if step == 300 else 0.0
        return times

    assert [(each.kind, each.step) for each in loud(found_in(spans, load=9.0))] == [("data_stall", 300)]


@pytest.mark.parametrize("jitter", [0.1, 0.2])
def test_jitter_is_no_slowdown(jitter: float) -> None:
    """A machine whose steps vary by 10 or 20 % has no finding, over twenty runs."""
    for seed in range(20):
        assert loud(found_in(lambda step, rng: usual(step, rng, jitter), 600, seed)) == [], seed


def test_an_evaluation_explains_no_stall_that_other_evaluations_do_not_have() -> None:
    """Evaluations every 10 steps cost nothing; a load of 2.5 s in one of their steps is a stall."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        times = usual(step, rng)
        times["train.data_load"] += 2.5 if step == 160 else 0.0
        return times

    found = loud(found_in(spans, logs=lambda step, rng: {"eval/accuracy": rng.random()} if step % 10 == 0 else {}))
    assert [(each.kind, each.step) for each in found] == [("data_stall", 160)]


def _slower(times: float = 1.0, seconds: float = 0.0) -> Spans:
    """The backward pass takes longer from step 200 on."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        took = usual(step, rng)
        if step >= 200:
            took["train.backward"] = times * took["train.backward"] + seconds
        return took

    return spans


def test_a_step_that_loses_two_milliseconds_is_a_remark() -> None:
    """Two milliseconds more in a short step are shown and are no fault; ten milliseconds are one."""
    small, large = found_in(_slower(seconds=0.002)), found_in(_slower(seconds=0.01))
    assert [(each.kind, each.severity) for each in small] == [("throughput_loss", "INFO")]
    assert [(each.kind, each.span) for each in loud(large)] == [("throughput_loss", "train.backward")]


@pytest.mark.parametrize(("steps", "severity"), [(320, "INFO"), (700, "WARN")])
def test_a_slowdown_that_has_cost_little_so_far_is_a_remark(steps: int, severity: str) -> None:
    """Five milliseconds a step are one until they have cost a second in all: then the same finding is a fault."""
    (found,) = found_in(_slower(seconds=0.005), steps=steps)
    assert (found.kind, found.severity, found.span) == ("throughput_loss", severity, "train.backward")


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ({"psi/cpu": 0.6}, "wait for a CPU 60% of the time"),
        ({"psi/memory": 0.3}, "wait for memory 30% of the time"),
        ({"cpu/throttled_seconds_per_second": 0.2}, "the CPU quota stops the process 20% of the time"),
    ],
    ids=["cpu", "memory", "quota"],
)
def test_pressure_on_the_machine_explains_slower_steps(readings: dict[str, float], words: str) -> None:
    """Steps that slow down while tasks wait for CPU or memory are the machine's; one span that takes longer is not."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        return {name: (1.8 if step >= 200 else 1.0) * took for name, took in usual(step, rng).items()}

    found = found_in(spans, readings=readings)
    assert [each.kind for each in found if each.kind == "busy_machine"] == ["busy_machine"]
    assert words in next(each.text for each in found if each.kind == "busy_machine")
    assert not [each for each in loud(found) if each.kind == "throughput_loss"]
    assert "throughput_loss" in [each.kind for each in loud(found_in(_slower(5.0), readings=readings))]


def _waiting(step: int, rng: random.Random, wait: float, jitter: float) -> dict[str, float]:
    """A step without spans for its parts, which waits from step 200 on."""
    return {"step_body": 0.013 * rng.lognormvariate(0, 0.05) + wait * (step >= 200) * rng.lognormvariate(0, jitter)}


@pytest.mark.parametrize(("wait", "jitter", "named"), [(0.06, 0.03, True), (0.06, 1.0, False), (0.012, 0.03, False)])
def test_a_wait_of_one_length_in_each_step_is_not_of_the_machine(wait: float, jitter: float, named: bool) -> None:
    """A load of 1.6 for each CPU explains neither a step that is five times as long nor that all are as long."""
    found = found_in(lambda step, rng: _waiting(step, rng, wait, jitter), load=3.2)
    slower = [each for each in loud(found) if each.kind == "throughput_loss"]
    assert bool(slower) == named
    assert all(each.step == 200 and "which does not explain it" in each.text for each in slower)


def test_a_slowdown_after_a_mild_one_is_a_finding_of_its_own() -> None:
    """Two milliseconds are a remark; they hide no forty."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        times = usual(step, rng, 0.02)
        times["train.forward"] += 0.0022 if step >= 150 else 0.0
        times["train.backward"] += 0.04 if step >= 400 else 0.0
        return times

    found = [each for each in found_in(spans, 600) if each.kind == "throughput_loss"]
    assert [(each.severity, each.span) for each in found] == [("INFO", "train.forward"), ("WARN", "train.backward")]
    assert abs((found[1].step or 0) - 400) <= 5


@pytest.mark.parametrize(("took", "severity"), [(0.3, "INFO"), (0.9, "WARN")])
def test_one_short_moment_is_a_remark(took: float, severity: str) -> None:
    """Any machine has one; a second is worth a look."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        return usual(step, rng) | ({"train.forward": took} if step == 200 else {})

    (found,) = found_in(spans)
    assert (found.kind, found.step, found.severity) == ("slow_span", 200, severity)


BUSY = {"psi/cpu": 0.9}


@pytest.mark.parametrize(("grows", "kind"), [(0.0002, "throughput_loss"), (0.0, "")], ids=["a leak", "none"])
def test_steps_that_get_longer_one_by_one_are_not_put_down_to_a_load_that_stays(grows: float, kind: str) -> None:
    """Something grows with each step; a machine that was as busy all the time is no reason."""

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        return {"train.forward": (0.010 + grows * step) * rng.lognormvariate(0, 0.3)}

    found = loud(found_in(spans, 400, load=12.0, readings=BUSY))
    assert [each.kind for each in found][:1] == ([kind] if kind else [])
    assert all("grows with each step" in each.cause for each in found[:1])


def test_a_clock_that_is_cut_explains_longer_steps_on_a_busy_machine() -> None:
    """The finding has its readings as the cause."""
    clock = {"now": 1980.0}
    readings = BUSY | {"gpu/0/clock_mhz": 1980.0}

    def spans(step: int, rng: random.Random) -> dict[str, float]:
        clock["now"] = readings["gpu/0/clock_mhz"] = 1980.0 if step < 200 else 1000.0
        return {"train.forward": 0.012 * 1980 / clock["now"] * rng.lognormvariate(0, 0.35)}

    (found, *_) = loud(found_in(spans, 420, load=12.0, readings=readings))
    assert found.kind == "throughput_loss"
    assert "clock of a GPU went from 1,980 to 1,000 MHz" in found.cause
