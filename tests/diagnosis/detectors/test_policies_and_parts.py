"""Policies, games, experts and weighted parts: what a change beside them explains, and what it does not."""

import math
import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

Values = dict[str, float]
Run = Callable[[int, random.Random], Values]
AT = 200


def found_in(values: Run, steps: int = 320, seed: int = 1) -> list[Finding]:
    """Diagnose what is logged at each step."""
    made, rng = Diagnosis(), random.Random(seed)
    for step in range(steps):
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values(step, rng)))
    return [each for each in made.findings() if each.severity != "INFO"]


def kinds_in(values: Run, steps: int = 320) -> list[str]:
    """The kinds of its findings."""
    return [each.kind for each in found_in(values, steps)]


def policy(step: int, rng: random.Random, rises: float) -> Values:
    """A policy of numbers, whose entropy is of a density: it rises, and the reward too or not."""
    reward = -20 + (18 * step / 320 if rises else 18 * (1 - math.exp(-step / 30)))
    return {"rollout/ep_rew_mean": reward + rng.gauss(0, 0.3), "train/entropy_loss": -1.4 - 0.01 * step}


def test_an_entropy_that_rises_for_nothing_is_named() -> None:
    """One that rises together with the reward explores."""
    assert kinds_in(lambda step, rng: policy(step, rng, 0.0)) == ["entropy_explosion"]
    assert kinds_in(lambda step, rng: policy(step, rng, 1.0)) == []


def groups(step: int, rng: random.Random, solved: float) -> Values:
    """Answers become sure within some tens of steps, and right or not."""
    sure = 1 / (1 + math.exp(-(step - 100) / 8))
    return {"entropy": 2.3 * (1 - sure) + 0.05, "reward": 0.1 + solved * sure + rng.gauss(0, 0.02)}


def test_an_entropy_that_falls_while_the_task_is_learnt_is_left_alone() -> None:
    """The same fall with a reward that stays is a collapse."""
    assert kinds_in(lambda step, rng: groups(step, rng, 0.85)) == []
    assert kinds_in(lambda step, rng: groups(step, rng, 0.0)) == ["entropy_collapse"]


def critic(step: int, rng: random.Random, explains: float) -> Values:
    """The reward rises for a hundred updates."""
    reward = -20 + 18 * min(step / 120, 1.0) + rng.gauss(0, 0.3)
    return {"rollout/ep_rew_mean": reward, "train/explained_variance": explains + rng.gauss(0, 0.04)}


def test_a_value_function_that_never_explained_a_rising_reward_is_named() -> None:
    """Though the policy has learnt; one that explains a little is not."""
    assert kinds_in(lambda step, rng: critic(step, rng, -0.05)) == ["value_function"]
    assert kinds_in(lambda step, rng: critic(step, rng, 0.3)) == []


def test_exploration_that_begins_again_is_named() -> None:
    """A schedule that decays is not."""

    def explores(again: int) -> Run:
        return lambda step, rng: {"rollout/exploration_rate": max(1 - (step % again) / 80, 0.05)}

    (found,) = found_in(explores(AT))
    assert (found.kind, found.step) == ("bad_resume", AT)
    assert kinds_in(explores(1000)) == []


def test_a_reward_that_no_longer_varies_is_named_soon() -> None:
    """After some twenty equal values where all before were apart; a reward at its best may stay."""
    dead = found_in(lambda step, rng: {"reward": 0.2 if step >= AT else rng.gauss(0.5, 0.1)}, AT + 20)
    assert [(each.kind, each.step) for each in dead] == [("dead_environment", AT)]
    assert kinds_in(lambda step, rng: {"reward": 1.0 if step >= AT else rng.uniform(0.2, 0.9)}) == []
    assert kinds_in(lambda step, rng: {"reward": round(rng.gauss(0.5, 0.1), 1)}, 200) == []


def test_rewards_without_a_spread_teach_nothing() -> None:
    """Where they are not high."""

    def spread(reward: float) -> Run:
        return lambda step, rng: {
            "reward_std": 0.0 if step >= AT else rng.uniform(0.1, 0.3),
            "reward": reward + rng.gauss(0, 0.002) if step >= AT else rng.uniform(0.0, min(2 * reward, 0.95)),
        }

    assert "zero_advantage" in kinds_in(spread(0.1))
    assert kinds_in(spread(0.98)) == []


def game(step: int, rng: random.Random, norm: float) -> Values:
    """A generator and a discriminator that swing around each other."""
    swing = math.sin(step / 12)
    losses = {"loss_D": 1.38 + 0.08 * swing + rng.gauss(0, 0.01), "loss_G": 0.7 - 0.08 * swing + rng.gauss(0, 0.01)}
    return losses | {"grad_norm_G": 0.02 * rng.lognormvariate(0, 0.2) * (norm if step >= 60 else 1.0)}


def test_gradients_of_a_game_swing_by_tens_and_explode_by_thousands() -> None:
    """The same norm of a single network has exploded."""
    assert kinds_in(lambda step, rng: game(step, rng, 20.0)) == []
    assert "exploding_gradients" in kinds_in(lambda step, rng: game(step, rng, 2000.0))
    assert "exploding_gradients" in kinds_in(lambda step, rng: {"grad_norm": game(step, rng, 20.0)["grad_norm_G"]})


def weighted(step: int, rng: random.Random, times: float) -> Values:
    """The weight of the KL term rises fivefold from step 200 on, and the loss with it, or more than that."""
    rise = min(max(step - AT, 0) / 80, 1.0)
    loss = (0.5 + 2 * math.exp(-step / 40)) * (1 + (times - 1) * rise)
    return {"loss": loss * rng.lognormvariate(0, 0.01), "beta": 0.02 * (1 + 4 * rise)}


def test_a_weight_explains_as_much_of_a_loss_as_it_rose() -> None:
    """And no more."""
    assert kinds_in(lambda step, rng: weighted(step, rng, 2.0)) == []
    assert kinds_in(lambda step, rng: weighted(step, rng, 12.0)) in (["divergence"], ["level_shift"])


def test_one_expert_that_gets_all_is_named() -> None:
    """From the start, too."""
    (found,) = found_in(lambda step, rng: {"loss": 1 + 1 / (1 + step), "moe/load_max": min(rng.gauss(0.97, 0.01), 1.0)})
    assert (found.kind, found.step) == ("moe_imbalance", 0)
    assert kinds_in(lambda step, rng: {"moe/load_max": rng.gauss(0.3, 0.03)}) == []


def test_generated_samples_that_become_equal_are_named() -> None:
    """Those whose spread grows to that of the data are not."""
    (found,) = found_in(lambda step, rng: {"fake_std": (0.9 if step < AT else 0.05) * rng.lognormvariate(0, 0.05)})
    assert found.kind == "posterior_collapse"
    assert abs((found.step or 0) - AT) <= 5
    assert kinds_in(lambda step, rng: {"fake_std": min(0.1 + step / 200, 1.0) * rng.lognormvariate(0, 0.05)}) == []


def test_a_loss_of_guessing_beside_right_answers_is_named() -> None:
    """With wrong answers it is one that does not learn, and a loss that falls is neither."""

    def similar(loss: float, right: float) -> list[Finding]:
        return found_in(
            lambda step, rng: {"loss": loss + rng.gauss(0, 0.001), "top1": min(right + rng.gauss(0, 0.02), 1.0)}
        )

    (found,) = similar(3.871, 0.9)
    assert found.kind == "not_learning"
    assert "temperature" in found.cause
    assert similar(0.55, 0.9) == []


def test_a_language_model_that_begins_far_above_guessing_is_named() -> None:
    """A loss that is a sum over tokens stays there, and is no such one."""

    def tokens(scale: float, floor: float) -> list[str]:
        return kinds_in(
            lambda step, rng: {"train/loss": scale * math.exp(-step / 12) + floor, "train/tokens": 400.0 * step}
        )

    assert "absurd_loss" in tokens(140.0, 2.0)
    assert tokens(3.0, 2.0) == []
    assert tokens(140.0, 60.0) == []


@pytest.mark.parametrize(("wrong", "kinds"), [(True, ["overfit"]), (False, [])])
def test_few_evaluations_tell_a_leak(wrong: bool, kinds: list[str]) -> None:
    """Two that are each far worse, while the training becomes far better."""

    def values(step: int, rng: random.Random) -> Values:
        since = max(step - AT, 0) / 60 if wrong else 0.0
        held_out = {"val_loss": (1.2 + math.exp(-step / 60)) * (1 + 0.5 * since)} if step % 60 == 19 else {}
        return {"loss": (1.1 + math.exp(-step / 60)) * math.exp(-since / 2) * rng.lognormvariate(0, 0.03)} | held_out

    assert kinds_in(values, 321) == kinds


def test_an_accuracy_of_small_batches_drops() -> None:
    """Single values are anywhere, those of many are not."""

    def right(share: float, rng: random.Random) -> float:
        return sum(rng.random() < share for _ in range(16)) / 16

    (found,) = found_in(lambda step, rng: {"rewards/accuracies": right(0.75 if step < AT else 0.25, rng)})
    assert found.kind == "accuracy_drop"
    assert abs((found.step or 0) - AT) <= 10
    for seed in range(5):
        assert found_in(lambda step, rng: {"rewards/accuracies": right(0.75, rng)}, seed=seed) == []


def test_a_rise_in_noise_of_its_size_is_named_once_it_has_lasted() -> None:
    """A loss of small batches that is higher by a half for forty values, and one that is not."""

    def loss(factor: float) -> Run:
        return lambda step, rng: {"loss": rng.lognormvariate(0, 0.25) * (factor if step >= AT else 1.0)}

    (found,) = found_in(loss(2.0))
    assert found.kind == "level_shift"
    for seed in range(5):
        assert found_in(loss(1.05), seed=seed) == []


def forgets(step: int, rng: random.Random, ends: float) -> Values:
    """A policy that learns for two hundred updates; from then on its entropy rises to this value."""
    back = min(max(step - AT, 0) / 20, 1.0)
    learnt = math.exp(-step / 40)
    entropy = 2.3 * learnt + 0.3 * (1 - learnt)
    reward = 0.3 + 0.6 * (1 - learnt) * (1 - back * (ends > 2))
    return {"actor/entropy": entropy + back * (ends - entropy), "critic/score/mean": reward + rng.gauss(0, 0.02)}


def test_an_entropy_that_comes_back_to_what_it_was_at_first_is_named_where_the_reward_falls() -> None:
    """Its way down is no level to compare with; one that rises a little, with a reward that stays, explores."""
    found = found_in(lambda step, rng: forgets(step, rng, 2.3))
    assert "entropy_explosion" in [each.kind for each in found]
    assert abs((next(each for each in found if each.kind == "entropy_explosion").step or 0) - AT) <= 10
    assert kinds_in(lambda step, rng: forgets(step, rng, 0.8)) == []


def late(step: int, rng: random.Random, gains: float) -> Values:
    """An entropy that falls at once, and a reward that rises only afterwards."""
    sure = 1 / (1 + math.exp(-(step - 100) / 4))
    reward = 0.5 + gains * min(max(step - 130, 0) / 60, 1.0)
    return {"entropy": 2.2 * (1 - sure) + 0.05, "reward": reward + rng.gauss(0, 0.02)}


def test_a_collapse_of_the_entropy_is_withdrawn_when_the_reward_rises_to_its_best_after_it() -> None:
    """Some tasks are understood first and done well later."""
    assert kinds_in(lambda step, rng: late(step, rng, 0.8)) == []
    assert kinds_in(lambda step, rng: late(step, rng, 0.0)) == ["entropy_collapse"]


def cut(step: int, rng: random.Random, until: int) -> Values:
    """Answers that get too long in the first tens of updates, and end by themselves from a step on."""
    share = min(0.3 + step / 60, 0.85) if step < until else 0.85 * math.exp(-(step - until) / 10)
    return {"response_length/clip_ratio": share + rng.uniform(0, 0.02), "reward": step / 300 + rng.gauss(0, 0.05)}


def test_answers_that_end_by_themselves_after_all_are_no_truncation() -> None:
    """Those that go on being cut off are."""
    assert kinds_in(lambda step, rng: cut(step, rng, 120)) == []
    assert kinds_in(lambda step, rng: cut(step, rng, 1000)) == ["truncation"]


def updates(step: int, rng: random.Random, far: float) -> Values:
    """Updates of PPO of which a part is clipped, with a KL."""
    return {"train/clip_fraction": 0.35 + rng.gauss(0, 0.05), "train/approx_kl": far * rng.lognormvariate(0, 0.3)}


def test_updates_that_have_always_left_the_policy_are_named_by_two_values() -> None:
    """A third that is clipped is much; it is too much where the KL says so too."""
    assert kinds_in(lambda step, rng: updates(step, rng, 0.1)) == ["clip_saturated"]
    assert kinds_in(lambda step, rng: updates(step, rng, 0.01)) == []


@pytest.mark.parametrize(("ends", "kinds"), [(1000, ["not_finite"]), (30, [])], ids=["never", "later"])
def test_a_reward_that_never_comes_is_named(ends: int, kinds: list[str]) -> None:
    """It is NaN until the first episode has ended; one that has not ended in eighty values has no end."""

    def values(step: int, rng: random.Random) -> Values:
        reward = math.nan if step < ends else 10 + rng.gauss(0, 1)
        return {"env_runners/episode_return_mean": reward, "learner/total_loss": 1.0 / (1 + step / 50)}

    assert kinds_in(values) == kinds


@pytest.mark.parametrize(("name", "jumps"), [("recon", False), ("loss", True)])
def test_what_a_code_costs_is_no_update_of_a_policy(name: str, jumps: bool) -> None:
    """It rises by far when an autoencoder begins to use its code, beside the reconstruction that falls."""

    def values(step: int, rng: random.Random) -> Values:
        learnt = float(step >= 60)
        kl = (0.4 + 6 * learnt) * rng.lognormvariate(0, 0.05)
        return {name: (18 - 6 * learnt - step / 100) * rng.lognormvariate(0, 0.05), "kl": kl}

    assert ("kl_blowup" in kinds_in(values)) == jumps


def test_what_a_discriminator_wins_is_dated_by_its_beginning() -> None:
    """A generator that no longer learns loses little by little: not from where the ratio is at its highest."""

    def values(step: int, rng: random.Random) -> Values:
        lost = max(step - AT, 0) / 150
        return {
            "Loss_D": 1.3 * math.exp(-lost) * rng.lognormvariate(0, 0.05),
            "Loss_G": 0.8 * math.exp(0.8 * lost) * rng.lognormvariate(0, 0.05),
        }

    (found,) = found_in(values, 600)
    assert found.kind == "gan_imbalance"
    assert AT < (found.step or 0) <= AT + 90


@pytest.mark.parametrize(("share", "kinds"), [(0.8, ["truncation"]), (0.3, [])])
def test_few_answers_that_are_cut_off_since_the_first_evaluations_are_named(share: float, kinds: list[str]) -> None:
    """Four are written at each tenth step: a quarter is cut off in the first of them, and most in all others."""

    def values(step: int, rng: random.Random) -> Values:
        cut_off = sum(rng.random() < share for _ in range(4)) / 4 if step > 30 else 0.25
        found = {"loss": 1.2 + 2 * math.exp(-step / 40) + rng.gauss(0, 0.02)}
        return found | ({"completions/clipped_ratio": max(cut_off, 2 * share - 1)} if step % 10 == 9 else {})

    assert kinds_in(values, 420) == kinds
