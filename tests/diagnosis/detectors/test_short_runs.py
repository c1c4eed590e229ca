"""What a person sees at once in the few values of a short run: losses that turn, stop or jump, rates that are lost."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model import names
from stepscope.model.records import Event, Metric

START = 10**18
Values = dict[str, float]
Logged = Callable[[int, random.Random], Values]


def every_found_in(
    logged: Logged, steps: int, config: dict[str, Any] | None = None, seed: int = 1, step_ns: int = 10**8
) -> list[Finding]:
    """Diagnose what is logged at each step."""
    made, rng = Diagnosis(), random.Random(seed)
    made.feed(0, Event(START, None, None, None, None, 9, names.EVENT_STARTED, {"config": config or {}}))
    for step in range(steps):
        made.feed(0, Metric(START + step * step_ns, step, None, None, logged(step, rng)))
    return made.findings()


def kinds_in(logged: Logged, steps: int, config: dict[str, Any] | None = None, seed: int = 1) -> dict[str, int | None]:
    """Name what was found, remarks left out, with its step."""
    found = every_found_in(logged, steps, config, seed)
    return {each.kind: each.step for each in found if each.severity != "INFO"}


def falls(step: int) -> float:
    """A loss that is learnt steadily."""
    return 2.0 * math.exp(-step / 60)


def test_a_rate_that_is_lost_at_a_step_is_named_there() -> None:
    """It is divided by ten thousand, and goes on; a tenth is a schedule's step."""

    def rate(by: float) -> Logged:
        return lambda step, rng: {"lr": 1e-3 * (1 - step / 400) / (by if step >= 50 else 1), "loss": falls(step)}

    assert kinds_in(rate(1e4), 100)["lr_schedule"] == 50
    assert "lr_schedule" not in kinds_in(rate(10), 100)


@pytest.mark.parametrize(("configured", "named"), [(2e-3, True), (2e-6, False), (None, False)])
def test_a_rate_far_below_the_configured_one_is_named(configured: float | None, named: bool) -> None:
    """A warm-up that still rises is not compared yet."""
    config = {} if configured is None else {"learning_rate": configured}
    assert ("lr_schedule" in kinds_in(lambda step, rng: {"lr": 2e-7, "loss": 2.3}, 60, config)) is named
    rising = kinds_in(lambda step, rng: {"lr": 2e-7 * (step + 1), "loss": 2.3}, 60, {"learning_rate": 2e-3})
    assert "lr_schedule" not in rising


def restarts(at: tuple[int, ...], warm: int = 8) -> Logged:
    """A cosine of two hundred steps with a warm-up that begins again at some steps."""

    def logged(step: int, rng: random.Random) -> Values:
        since = step - max((each for each in at if each <= step), default=0)
        rate = min((since + 1) / warm, 0.5 * (1 + math.cos(math.pi * min(since, 200) / 200)))
        return {"lr": 1e-3 * rate, "loss": falls(step) + 0.1}

    return logged


def test_a_schedule_with_a_warm_up_that_begins_again_is_named_and_one_in_cycles_is_not() -> None:
    """The warm-up at the start is no sign of a schedule that rises by design; an earlier restart is."""
    assert abs((kinds_in(restarts((110,)), 160)["lr_schedule"] or 0) - 110) <= 1
    cycles = [1e-3 * 0.5 * (1 + math.cos(math.pi * (step % 12) / 12)) for step in range(40)]
    found = kinds_in(lambda step, rng: {"lr": cycles[step], "loss": falls(step) + 0.1}, 40)
    assert "lr_schedule" not in found


def evaluated(train: Callable[[int], float], held_out: Callable[[int], float], noise: float = 0.05) -> Logged:
    """A loss of each step and an evaluation at every fifth."""

    def logged(step: int, rng: random.Random) -> Values:
        values = {"train/loss": train(step) + noise * rng.gauss(0, 1)}
        return values | {"val/loss": held_out(step)} if step % 5 == 4 else values

    return logged


def test_a_held_out_loss_that_turns_with_the_training_is_a_divergence() -> None:
    """Labels of other rows from a step on; where the training loss falls on it is none."""

    def turned(step: int) -> float:
        return 2.4 - 0.017 * min(step, 70) + 0.006 * max(step - 70, 0)

    found = kinds_in(evaluated(turned, turned), 140)
    assert abs((found["divergence"] or 0) - 70) <= 5
    assert "divergence" not in kinds_in(evaluated(lambda step: 2.4 - 0.017 * step / 2, turned), 140)


def test_a_held_out_loss_that_stops_at_once_is_a_plateau() -> None:
    """The optimizer is no longer called; a loss that nears its floor slows down before."""

    def stopped(step: int) -> float:
        return 6.0 - 0.02 * min(step, 60) - 1e-5 * step

    found = kinds_in(evaluated(stopped, stopped, noise=0.4), 110)
    assert abs((found["plateau"] or 0) - 60) <= 6
    slowing = evaluated(lambda step: 0.2 + falls(3 * step), lambda step: 0.2 + falls(3 * step))
    assert "plateau" not in kinds_in(slowing, 110)


def test_a_held_out_loss_that_may_be_negative_jumps() -> None:
    """A density: from -0.4 to thousands, while the training loss says little."""
    jumped = evaluated(lambda step: 0.2 - 0.004 * step, lambda step: 0.2 - 0.004 * step if step < 70 else 9e3 + step)
    assert abs((kinds_in(jumped, 110)["level_shift"] or 0) - 70) <= 6
    assert "level_shift" not in kinds_in(evaluated(lambda s: 0.2 - 0.004 * s, lambda s: 0.2 - 0.004 * s), 110)


@pytest.mark.parametrize("at", [12, 27])
def test_a_loss_far_above_the_few_values_before_is_named(at: int) -> None:
    """From one step to the next it is sixty times as high; one that climbs from the start on diverges."""
    found = kinds_in(lambda step, rng: {"loss": (1.4 if step < at else 90.0) * rng.lognormvariate(0, 0.05)}, at + 10)
    assert found["level_shift"] == at
    climbs = kinds_in(lambda step, rng: {"loss": 2.9 * 1.25**step}, 40)
    assert "divergence" in climbs
    assert "level_shift" not in climbs


def test_a_reward_that_is_never_given_or_not_any_more_is_named() -> None:
    """Exactly 0 after it was not, and always 0 beside evaluations that have one."""

    def ends(step: int, rng: random.Random) -> Values:
        return {"reward": 0.2 + 0.05 * rng.random() if step < 30 else 0.0, "kl": 0.01}

    assert kinds_in(ends, 45)["dead_environment"] == 30

    def never(step: int, rng: random.Random) -> Values:
        values = {"train/reward": 0.0, "kl": 0.01}
        return values | {"eval/reward": rng.random()} if step % 10 == 9 else values

    assert kinds_in(never, 80)["dead_environment"] == 0
    assert "dead_environment" not in kinds_in(lambda step, rng: {"train/reward": 0.0, "kl": 0.01}, 80)


def test_a_policy_that_forgets_at_once_is_named_in_few_values() -> None:
    """The first weights are loaded again; a reward that wanders as much without a policy's measures is left alone."""

    def forgets(step: int, rng: random.Random) -> Values:
        since = step if step < 60 else step - 60
        return {"reward": 0.08 + 0.006 * since + 0.03 * rng.gauss(0, 1), "kl": 0.01 * since}

    assert abs((kinds_in(forgets, 85)["reward_collapse"] or 0) - 60) <= 2


def test_a_sum_is_told_by_a_constant_ratio_to_the_held_out_loss() -> None:
    """It is that of the batch; a part that is added to the training loss is no constant ratio."""

    def logged(times: float, more: float) -> Logged:
        return evaluated(lambda step: times * falls(2 * step) + more, lambda step: falls(2 * step), noise=0.001)

    found = every_found_in(logged(64.0, 0.0), 120)
    assert [each.kind for each in found if "throughout" in each.text] == ["absurd_loss"]
    assert not [each for each in every_found_in(logged(1.0, 30.0), 120) if "throughout" in each.text]


@pytest.mark.parametrize(("grows", "named"), [(1.6, True), (0.0, False)])
def test_memory_that_was_level_and_grows_like_a_line_is_named(grows: float, named: bool) -> None:
    """By a tenth of what the process has; memory that only moves is not."""

    def logged(step: int, rng: random.Random) -> Values:
        return {"memory/rss_mb": 660.0 + grows * max(step - 40, 0) + 0.1 * rng.random(), "loss": falls(step)}

    found = kinds_in(logged, 90)
    assert ("memory_creep" in found) is named
    if named:
        assert abs((found["memory_creep"] or 0) - 40) <= 6


def slower(usual: float, now: float, every: float) -> list[Finding]:
    """Diagnose a step time in seconds that changes in the middle; a step is logged after so many seconds."""
    made, rng = Diagnosis(), random.Random(1)
    for step in range(90):
        took = (usual if step < 50 else now) * rng.lognormvariate(0, 0.02)
        made.feed(0, Metric(START + int(step * every * 1e9), step, None, None, {"step_time": took}))
    return [each for each in made.findings() if each.kind == "throughput_loss" and "step_time" in each.text]


def test_a_slowdown_in_few_values_is_named_by_what_it_costs() -> None:
    """Six times as long for a minute; as many times for a hundredth of a second is a remark."""
    (found,) = slower(0.2, 1.2, 1.0)
    assert (found.severity, found.step) == ("WARN", 50)
    assert [each.severity for each in slower(0.0002, 0.0012, 0.001)] == ["INFO"]


def test_two_equal_evaluations_of_few_digits_are_chance_while_the_training_learns() -> None:
    """Three are not."""

    def held(equal: int) -> Callable[[int], float]:
        return lambda step: round(2.0 - 0.05 * (min(step // 5, 10) if step // 5 < 10 + equal else step // 5), 5)

    assert "weights_frozen" not in kinds_in(evaluated(lambda step: 2.0 - 0.01 * step, held(2), noise=0.0), 80)
