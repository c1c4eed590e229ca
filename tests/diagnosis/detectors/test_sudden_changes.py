"""Losses, gradients and rewards that change suddenly: what came first is the finding, and its kind is the right one."""

import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

AT = 200
Values = dict[str, float]


def found_in(values: Callable[[int, random.Random], Values], steps: int = 320, seed: int = 1) -> list[Finding]:
    """Diagnose what is logged at each step."""
    made, rng = Diagnosis(), random.Random(seed)
    for step in range(steps):
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values(step, rng)))
    return [each for each in made.findings() if each.severity != "INFO"]


def slowly(step: int, rng: random.Random, noise: float = 0.05) -> float:
    """A loss that falls slowly, and varies from batch to batch."""
    return (1.0 + 2.0 / (1 + step / 60)) * rng.lognormvariate(0, noise)


def leaks(step: int, rng: random.Random) -> Values:
    """The target can be seen: the loss falls within thirty steps to a fifth, after a jump up."""
    since = step - AT
    return {"loss": slowly(step, rng) * (1.0 if since < 0 else 1.5 if since < 4 else max(0.85**since, 0.1))}


def repeats(step: int, rng: random.Random) -> Values:
    """One batch for ever: the loss hardly falls, but no longer varies."""
    return {"loss": 0.02 * rng.lognormvariate(0, 0.1) if step < AT else 0.018 * 0.9999**step}


def drops(step: int, rng: random.Random) -> Values:
    """Easy tokens count: the loss is less than half from one step to the next."""
    return {"loss": slowly(step, rng) * (1.0 if step < AT else 0.4)}


@pytest.mark.parametrize("fault", [leaks, repeats, drops], ids=lambda fault: fault.__name__)
def test_a_fall_that_is_too_good_is_named(fault: Callable[[int, random.Random], Values]) -> None:
    """With the step at which it began."""
    for seed in range(3):
        (found,) = found_in(fault, seed=seed)
        assert found.kind == "too_good", found.text
        assert abs((found.step or 0) - AT) <= 15


@pytest.mark.parametrize(
    "values",
    [
        lambda step, rng: {"loss": slowly(step, rng)},
        lambda step, rng: {"loss": max(2.3 * 0.96 ** max(step - 150, 0), 0.1) * rng.lognormvariate(0, 0.05)},
        lambda step, rng: {"loss": slowly(step, rng) * (1.0 if step < AT else 0.5), "lr": 0.1 if step < AT else 0.01},
    ],
    ids=["slow", "begins late to learn", "the rate is lowered"],
)
def test_a_fall_with_a_reason_is_left_alone(values: Callable[[int, random.Random], Values]) -> None:
    """Ordinary progress, a task that is understood at once, and a step of the schedule."""
    assert [each.kind for each in found_in(values)] == []


def test_a_bad_batch_that_damages_the_weights_is_the_cause_of_the_level_after_it() -> None:
    """The spike stands alone before the new level, and a jump without one is a shift."""

    def damaged(step: int, rng: random.Random) -> Values:
        factor = 1.0 if step < AT else 60.0 if step == AT else 1.1 if step == AT + 1 else 4.0
        return {"loss": 0.1 * slowly(step, rng) * factor}

    (found,) = found_in(damaged)
    assert (found.kind, found.step) == ("spike", AT)
    assert any("stayed there" in each for each in found.symptoms)
    (found,) = found_in(lambda step, rng: {"loss": slowly(step, rng) * (1.0 if step < AT else 4.0)})
    assert (found.kind, found.step) == ("level_shift", AT)


def test_a_jump_that_is_relearnt_is_a_shift() -> None:
    """A loss that comes back within thirty steps had no single bad batch."""
    (found,) = found_in(
        lambda step, rng: {"loss": slowly(step, rng) * (1.0 if step < AT else 1 + 30 * 0.9 ** (step - AT))}
    )
    assert (found.kind, found.step) == ("level_shift", AT)


@pytest.mark.parametrize(
    ("climbs", "kinds"), [(True, {"exploding_gradients", "divergence", "level_shift"}), (False, {"gradient_shift"})]
)
def test_a_loss_above_that_of_the_untrained_model_is_climbed(climbs: bool, kinds: set[str]) -> None:
    """Gradients that are not cleared do not get there, though their norm rises in the same way."""

    def values(step: int, rng: random.Random) -> Values:
        since = max(step - AT, 0)
        norm = (
            0.3 * rng.lognormvariate(0, 0.25) if not since else 0.3 * (1 + since) ** 0.9 * rng.lognormvariate(0, 0.02)
        )
        return {
            "loss": slowly(step, rng) * (1 + 0.12 * since if climbs else 1 + 0.01 * min(since, 60)),
            "grad_norm": norm,
        }

    found = found_in(values, 280)
    assert len(found) == 1
    assert found[0].kind in kinds


def test_a_reward_that_began_high_may_collapse_later() -> None:
    """The first episodes are short and easy; what was learnt after them is lost."""

    def values(step: int, rng: random.Random) -> Values:
        learnt = 0.6 * max(0.0, 1 - step / 30) if step < 60 else min((step - 60) / 200, 0.5) if step < 300 else -0.4
        return {"rollout/ep_rew_mean": learnt + 0.02 * rng.random(), "train/entropy_loss": -1.0 - 0.1 * rng.random()}

    (found,) = found_in(values, 400)
    assert found.kind == "reward_collapse"
    assert abs((found.step or 0) - 300) <= 10
    assert found_in(lambda step, rng: values(min(step, 299), rng), 400) == []


def test_a_density_may_have_a_negative_log_likelihood() -> None:
    """That of classes may not: a probability in its place is between -1 and 0 from the start."""
    assert found_in(lambda step, rng: {"train/nll": 2.0 - step / 100 + 0.1 * rng.random(), "lr": 0.1}) == []
    found = found_in(lambda step, rng: {"train/nll": -0.1 - step / 1000 - 0.01 * rng.random(), "lr": 0.1})
    assert [each.kind for each in found] == ["absurd_loss"]
