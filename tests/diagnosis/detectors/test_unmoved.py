"""Weights of the start, evaluated rewards that fall, policies and losses that never moved, and equal evaluations."""

import random

import pytest

from tests.diagnosis.detectors.test_short_runs import Logged, Values, every_found_in, falls, kinds_in


def restored(at: int, *, train: bool = True, early: float = 0.0) -> Logged:
    """A training whose weights are those of the start again from a step on, evaluated at every tenth."""

    def logged(step: int, rng: random.Random) -> Values:
        since = step - at if step >= at else step
        loss = falls(since if train else step) * rng.uniform(0.95, 1.05)
        held_out = {"eval/loss": falls(since) + early} if step % 10 == 9 else {}
        return {"train/loss": loss, **held_out}

    return logged


def test_weights_of_the_start_are_named_though_they_learn_again() -> None:
    """Evaluation and training go back together, at a step that the training tells."""
    found = kinds_in(restored(75), 110)
    assert found["level_shift"] == 75
    assert len(every_found_in(restored(75), 110)) == 1


def test_evaluations_alone_that_go_back_are_not_taken_for_lost_weights() -> None:
    """Without the training beside it, it is what is evaluated that has changed."""
    texts = [each.text for each in every_found_in(restored(75, train=False), 110)]
    assert not any("as if little had been learnt" in text for text in texts)


def rewards(evaluated: list[float], *, trained: float = 0.0) -> Logged:
    """A policy with evaluations at every tenth update, and a reward of the training with a slope."""

    def logged(step: int, rng: random.Random) -> Values:
        shown = {"eval/mean_reward": evaluated[step // 10]} if step % 10 == 9 else {}
        entropy = 2.0 - step / 200 + rng.uniform(-0.02, 0.02)
        return {"rollout/ep_rew_mean": trained * step + rng.gauss(0, 0.2), "train/entropy": entropy, **shown}

    return logged


@pytest.mark.parametrize(
    ("evaluated", "step"),
    [
        ([0.2, 0.9, 1.6, 2.3, 3.0, 2.2, 1.5, 0.9, 0.2, -0.5], 49),
        ([-0.4, -0.7, -1.0, -1.2, -1.3, -1.45, -1.5, -1.6, -1.65, -1.7], 9),
        ([0.2, 0.9, 1.6, 2.3, 3.0, 2.95, 3.05, 2.98, 3.0, 3.02], None),
        ([0.2, 0.9, 1.6, 2.3, 3.0, 2.98, 2.97, 2.95, 2.9, 2.88], None),
        ([3.0, 2.1, 2.9, 2.0, 3.1, 2.2, 2.8, 2.1, 3.0, 2.2], None),
    ],
)
def test_an_evaluated_reward_that_falls_steadily_is_named(evaluated: list[float], step: int | None) -> None:
    """From its best on, or from the first evaluation; what is level, falls a little or wavers is not."""
    found = {each.kind: each for each in every_found_in(rewards(evaluated), 100) if each.severity != "INFO"}
    assert (found["reward_collapse"].step if "reward_collapse" in found else None) == step


def test_a_reward_that_rises_in_training_and_falls_in_evaluations_is_said_so() -> None:
    """What is rewarded is not what is evaluated."""
    evaluated = [-0.4, -0.7, -1.0, -1.2, -1.3, -1.45, -1.5, -1.6, -1.65, -1.7]
    (text,) = [
        each.text for each in every_found_in(rewards(evaluated, trained=0.05), 100) if each.kind == "reward_collapse"
    ]
    assert text.endswith("while rollout/ep_rew_mean rises")


@pytest.mark.parametrize(("entropy", "reward", "named"), [(0.0, 0.0, True), (0.01, 0.0, False), (0.0, 0.02, False)])
def test_a_policy_that_never_moves_is_named(entropy: float, reward: float, named: bool) -> None:
    """Its entropy stays and no reward rises; a slow start moves one of them."""

    def logged(step: int, rng: random.Random) -> Values:
        return {
            "train/entropy": 1.09 - entropy * step + rng.uniform(-0.005, 0.005),
            "rollout/ep_rew_mean": reward * step + rng.gauss(0, 0.3),
        }

    assert ("not_learning" in kinds_in(logged, 80)) is named


@pytest.mark.parametrize(("fall", "named"), [(0.0, True), (0.05, False)])
def test_losses_that_stand_still_are_named(fall: float, named: bool) -> None:
    """Four evaluations and forty values that differ in the third digit."""

    def logged(step: int, rng: random.Random) -> Values:
        level = 1.327 * (1 - fall * step / 45) + rng.uniform(-0.004, 0.004)
        held_out = {"val/loss": 1.325 * (1 - fall * step / 45) + 0.0001 * (step % 7)} if step % 9 == 8 else {}
        return {"train/loss": level, "lr": 1e-3, **held_out}

    assert ("not_learning" in kinds_in(logged, 45)) is named


def test_three_equal_evaluations_after_large_changes_are_frozen_weights() -> None:
    """Two changes of a third each show that evaluations tell what is learnt."""
    evaluated = [0.77616, 0.48165, 0.19479, 0.19479, 0.19479]

    def logged(step: int, rng: random.Random) -> Values:
        shown = {"eval/loss": evaluated[step // 23]} if step % 23 == 22 else {}
        return {"train/loss": max(falls(step), 0.25) * rng.uniform(0.9, 1.1), **shown}

    assert "weights_frozen" in kinds_in(logged, 116)


def test_a_loss_that_diverges_is_named_though_it_had_not_been_learning() -> None:
    """A warning of long before hides no divergence."""

    def logged(step: int, rng: random.Random) -> Values:
        return {"loss": (85 if step < 260 else 85 * 1.03 ** (step - 260)) * rng.uniform(0.8, 1.25), "grad_norm": 10.0}

    found = kinds_in(logged, 420)
    assert "not_learning" in found
    assert {"divergence", "level_shift"} & set(found)
