"""Held-out losses that jump or never fall, accuracies that are perfect at once, and what grows without bound."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

Values = dict[str, float]
Logged = Callable[[int, random.Random], Values]


def found_in(values: Logged, steps: int = 300, seed: int = 1, config: dict[str, Any] | None = None) -> list[Finding]:
    """Diagnose what is logged at each step."""
    made, rng = Diagnosis(config=config or {}), random.Random(seed)
    for step in range(steps):
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values(step, rng)))
    return [each for each in made.findings() if each.severity != "INFO"]


def learning(step: int, rng: random.Random) -> float:
    """A loss that falls."""
    return (0.4 + 2.0 / (1 + step / 30)) * rng.lognormvariate(0, 0.03)


def evaluated(held_out: Callable[[int], float]) -> Logged:
    """A training loss that falls, and another loss at every twentieth step."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train/loss": learning(step, rng)}
        if step % 20 == 19:
            found["val/loss"] = held_out(step) * rng.lognormvariate(0, 0.01)
        return found

    return values


@pytest.mark.parametrize("seed", range(3))
def test_a_held_out_loss_that_jumps_alone_is_named(seed: int) -> None:
    """With the evaluation at which it is up; the training loss goes on falling."""
    (found,) = found_in(evaluated(lambda step: (0.5 + 2 / (1 + step / 30)) * (1.8 if step > 200 else 1.0)), seed=seed)
    assert (found.kind, found.key, found.step) == ("level_shift", "val/loss", 219)
    assert "what is evaluated has changed" in found.cause


@pytest.mark.parametrize("seed", range(3))
def test_a_held_out_loss_that_never_follows_the_training_is_named(seed: int) -> None:
    """A copy of the weights that is never updated; one that follows late is left alone."""
    (found,) = found_in(evaluated(lambda step: 2.4), seed=seed)
    assert (found.kind, found.key) == ("not_learning", "val/loss")
    assert "not what is trained" in found.cause
    assert not found_in(evaluated(lambda step: 2.4 if step < 60 else 0.6 + 100 / step), seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_within_the_noise_of_small_batches_is_not_missed_in_evaluation(seed: int) -> None:
    """Blocks of a training loss of four examples differ by half; the evaluations waver at the same level."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train/loss": (0.45 + 0.7 * math.exp(-step / 6)) * rng.lognormvariate(0, 0.45)}
        return found | ({"eval/loss": 0.52 * rng.lognormvariate(0, 0.05)} if step % 5 == 4 else {})

    assert not [each for each in found_in(values, steps=130, seed=seed) if each.kind == "not_learning"]


@pytest.mark.parametrize("seed", range(3))
def test_a_held_out_loss_that_shared_what_was_learnt_before_it_is_left_alone(seed: int) -> None:
    """All is learnt in the first steps, and both losses waver at what is left from the first evaluation on."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train/loss": (0.45 + 1.2 * math.exp(-step / 3)) * rng.lognormvariate(0, 0.25)}
        return found | ({"eval/loss": 0.56 * rng.lognormvariate(0, 0.05)} if step % 20 == 19 else {})

    assert not found_in(values, seed=seed)


@pytest.mark.parametrize(("before", "kinds"), [(0.6, ["too_good"]), (0.95, [])], ids=["far", "near"])
def test_an_accuracy_that_is_perfect_at_once_is_named(before: float, kinds: list[str]) -> None:
    """From one block of values to the next; one that was nearly perfect may become so."""
    found = found_in(
        lambda step, rng: {
            "train/top1": min(before + 0.03 * rng.random() if step < 200 else 0.99 + 0.01 * rng.random(), 1)
        }
    )
    assert [each.kind for each in found] == kinds
    assert all(abs((each.step or 0) - 200) <= 5 for each in found)


def test_a_loss_that_falls_ever_faster_below_zero_is_named() -> None:
    """A term with the wrong sign; a likelihood that falls more and more slowly below zero is left alone."""
    (found,) = found_in(lambda step, rng: {"loss": 11 - (0.02 * max(step - 150, 0)) ** 6 + 0.1 * rng.random()}, 400)
    assert found.kind == "absurd_loss"
    assert "wrong sign" in found.cause
    assert not found_in(lambda step, rng: {"loss": 3 - 8 * math.log1p(step / 20) + 0.1 * rng.random()}, 400)


@pytest.mark.parametrize("key", ["td_loss", "q_values"])
def test_what_grows_without_bound_is_named(key: str) -> None:
    """A part of a loss or an estimate that grows exponentially; one that jumps or learns from zero is not it."""
    (found,) = found_in(lambda step, rng: {key: 2 * 1.06 ** max(step - 150, 0) * rng.lognormvariate(0, 0.1)})
    assert found.kind == "divergence"
    assert abs((found.step or 0) - 155) <= 15
    assert not found_in(lambda step, rng: {key: 5 * (1.001 - 0.98**step) * rng.lognormvariate(0, 0.1)})


@pytest.mark.parametrize("config", [{"max_steps": 300}, {"max_steps": 300, "schedule": "cyclic"}, {}])
def test_a_schedule_that_is_stepped_twice_is_named(config: dict[str, Any]) -> None:
    """A cosine of 300 steps that is at zero in the middle, and rises again; a cycle does so on purpose."""
    found = found_in(lambda step, rng: {"lr": 1e-3 * (1 + math.cos(math.pi * step / 150)) / 2}, config=config)
    assert [each.kind for each in found] == (["lr_schedule"] if config == {"max_steps": 300} else [])
    assert all(abs((each.step or 0) - 150) <= 1 for each in found)


def test_guessing_is_named_in_a_loss_that_is_logged_once_an_epoch() -> None:
    """Twenty values are enough where each comes with an evaluation."""
    (found,) = found_in(lambda step, rng: {"loss": 0.6931 + 0.001 * rng.random(), "val_loss": 0.694}, steps=20)
    assert found.kind == "not_learning"
    assert not found_in(lambda step, rng: {"loss": 0.6931 + 0.001 * rng.random()}, steps=20)


def test_experts_of_which_one_gets_all_are_named() -> None:
    """The level of the loss that follows is its symptom."""
    (found,) = found_in(
        lambda step, rng: {
            "loss": learning(step, rng) * (1.8 if step > 200 else 1.0),
            "moe/max_load": (1.0 if step > 200 else 0.2) * rng.uniform(0.9, 1.0),
        }
    )
    assert found.kind == "moe_imbalance"
    assert any("loss went up" in each for each in found.symptoms)


def test_a_divergence_term_alone_is_no_reinforcement_learning() -> None:
    """A loss beside the `kl` of an autoencoder is judged like any other."""
    found = found_in(
        lambda step, rng: {"kl": 3.0 * rng.lognormvariate(0, 0.1), "loss": 2.3 + 0.01 * rng.random(), "lr": 0.1}
    )
    assert [each.kind for each in found] == ["not_learning"]


def test_a_perplexity_that_comes_to_one_is_no_repeated_batch() -> None:
    """It hardly varies there, because hardly anything is left of the loss."""
    assert not found_in(lambda step, rng: {"train/ppl": math.exp(2.4 * 0.97**step * rng.lognormvariate(0, 0.2))})


def test_a_loss_that_the_first_update_throws_off_is_named() -> None:
    """Only its first value is low; it comes back within hundreds of steps."""
    (found,) = found_in(lambda step, rng: {"mse": 0.2 if not step else 700 * 0.98**step * rng.lognormvariate(0, 0.1)})
    assert (found.kind, found.step) == ("divergence", 0)


def test_a_reward_that_falls_slowly_is_dated_where_it_begins() -> None:
    """Not where half of it is lost."""
    found = found_in(
        lambda step, rng: {"reward": (min(step, 100) / 100 - max(step - 160, 0) / 150) + 0.03 * rng.gauss(0, 1)}
    )
    assert [each.kind for each in found] == ["reward_collapse"]
    assert abs((found[0].step or 0) - 160) <= 40


def reward_of(later: float) -> Logged:
    """A reward that falls below chance while fewer actions are by chance, and what becomes of it."""

    def values(step: int, rng: random.Random) -> Values:
        chance = max(0.05, 1 - step / 150)
        played = (
            15 + 4 * min(step / 20, 1) if step < 45 else 12 if step < 150 else 12 + (later - 12) * (step - 150) / 150
        )
        return {"rollout/exploration_rate": chance, "rollout/ep_rew_mean": played * rng.lognormvariate(0, 0.02)}

    return values


def test_a_reward_that_falls_while_chance_is_given_up_is_judged_afterwards() -> None:
    """It may come back once the policy knows more; one that does not has collapsed."""
    assert not found_in(reward_of(90.0))
    assert [each.kind for each in found_in(reward_of(10.0))] == ["reward_collapse"]


@pytest.mark.parametrize(("reward", "kinds"), [(9.0, ["entropy_collapse"]), (60.0, [])], ids=["worse", "better"])
def test_an_entropy_that_collapses_in_the_first_steps_is_named(reward: float, kinds: list[str]) -> None:
    """Its first value is the measure where the first blocks come too late; a task that is learnt at once is none."""

    def values(step: int, rng: random.Random) -> Values:
        left = math.exp(-step / 2)
        noise = rng.lognormvariate(0, 0.02)
        return {"entropy": 0.67 * left + 0.001 * noise, "ep_rew_mean": (reward + (18 - reward) * left) * noise}

    assert [each.kind for each in found_in(values, 90)] == kinds


@pytest.mark.parametrize(("gain", "kinds"), [(0.0, ["divergence"]), (0.2, [])], ids=["no better", "better"])
def test_a_part_that_grows_steadily_while_the_reward_does_not_is_named(gain: float, kinds: list[str]) -> None:
    """A coefficient that runs away; errors of values grow with the rewards of a policy that improves."""

    def values(step: int, rng: random.Random) -> Values:
        noise = rng.lognormvariate(0, 0.1)
        reward = -25 + gain * step + rng.random()
        return {"train/critic_loss": 0.3 * math.exp(max(step - 80, 0) / 30) * noise, "rollout/ep_rew_mean": reward}

    assert [each.kind for each in found_in(values, 260)] == kinds


def averaged(share: Callable[[int], float], metric: str = "loss") -> Logged:
    """A training and, at every twentieth step, a metric of averaged weights that has made a share of its way."""

    def values(step: int, rng: random.Random) -> Values:
        moved = share(step) * (1 - math.exp(-step / 60))
        found = {"train/loss": learning(step, rng), "train/acc": min(0.1 + 0.85 * (1 - math.exp(-step / 60)), 1.0)}
        if step % 20 == 19:
            at = 2.4 - 1.8 * moved if metric == "loss" else 0.1 + 0.85 * moved
            found[f"val/ema_{metric}"] = at * rng.lognormvariate(0, 0.04)
        return found

    return values


@pytest.mark.parametrize("metric", ["loss", "acc"])
def test_an_average_of_the_weights_that_stays_is_named(metric: str) -> None:
    """Its evaluations waver around their first level; one that follows is left alone."""
    (found,) = found_in(averaged(lambda step: 0.0, metric), 400)
    assert (found.kind, found.key) == ("not_learning", f"val/ema_{metric}")
    assert "average" in found.cause
    assert not found_in(averaged(lambda step: min(step / 200, 1.0), metric), 400)


def test_an_evaluation_at_the_level_of_the_training_has_followed_it() -> None:
    """It was good at its first evaluation already, and is no better than the training."""

    def values(step: int, rng: random.Random) -> Values:
        loss = 0.25 + 2.0 * math.exp(-step / 15)
        found = {"train/loss": loss * rng.lognormvariate(0, 0.03)}
        return found | ({"val/loss": 0.26 * rng.lognormvariate(0, 0.05)} if step % 50 == 49 else {})

    assert found_in(values, 900) == []
