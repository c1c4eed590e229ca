"""Losses, gradients and rewards that change suddenly: what came first is the finding, and its kind is the right one."""

import math
import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

AT = 200
Values = dict[str, float]


def found_in(values: Callable[[int, random.Random], Values], steps: int = 320, seed: int = 1) -> list[Finding]:
    """Diagnose what is logged at each step; remarks are left out."""
    return [each for each in every_found_in(values, steps, seed) if each.severity != "INFO"]


def every_found_in(values: Callable[[int, random.Random], Values], steps: int = 320, seed: int = 1) -> list[Finding]:
    """Diagnose what is logged at each step."""
    made, rng = Diagnosis(), random.Random(seed)
    for step in range(steps):
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values(step, rng)))
    return made.findings()


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


def one_cycle(step: int, rng: random.Random) -> Values:
    """At the end of its schedule a noisy loss settles, faster than it ever fell."""
    rate = 0.5 * (1 + math.cos(math.pi * max(step - 60, 0) / 260))
    settled = 1.0 if step < AT else 0.95 ** (step - AT)
    return {"loss": (0.2 + math.exp(-step / 25)) * max(settled, 0.05) * rng.lognormvariate(0, 0.1), "lr": 0.2 * rate}


def test_a_loss_that_settles_as_its_rate_decays_is_left_alone() -> None:
    """The same fall at a constant rate is too good."""
    assert [each.kind for each in found_in(one_cycle)] == []
    (found,) = found_in(lambda step, rng: one_cycle(step, rng) | {"lr": 0.2})
    assert found.kind == "too_good"


def every_fifth(values: Callable[[int, random.Random], Values], steps: int = 400) -> list[Finding]:
    """Diagnose what is logged at every fifth step: 80 values."""
    made, rng = Diagnosis(), random.Random(1)
    for step in range(0, steps, 5):
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values(step, rng)))
    return [each for each in made.findings() if each.severity != "INFO"]


def test_a_loss_that_is_logged_seldom_and_falls_to_nothing_is_too_good() -> None:
    """Only padding counts from step 200 on: a jump, and within ten values a thousandth of what it was."""

    def padded(step: int, rng: random.Random) -> Values:
        fallen = 2.5 * math.exp(-step / 95)
        return {"nll": (fallen if step < AT else max(8 * 0.78 ** (step - AT), 3e-4)) * rng.lognormvariate(0, 0.05)}

    assert {each.kind for each in every_fifth(padded)} == {"spike", "too_good"}
    assert every_fifth(lambda step, rng: {"nll": 2.5 * math.exp(-step / 95) * rng.lognormvariate(0, 0.05)}) == []


def test_a_spike_of_a_loss_that_falls_is_seen_early() -> None:
    """The fall of the first forty values is not their noise."""
    smooth = [0.98 * 0.973**epoch for epoch in range(60)]
    made = Diagnosis()
    for epoch, value in enumerate(smooth):
        made.feed(0, Metric(10**12 + epoch * 10**9, epoch, None, None, {"rmse": value * (2.5 if epoch == 30 else 1.0)}))
    assert [(each.kind, each.step) for each in made.findings()] == [("spike", 30)]


def test_the_loss_of_a_policy_moves_with_its_samples() -> None:
    """Twice the usual loss is no spike where rewards are logged; ten times is."""

    def policy(times: float) -> Callable[[int, random.Random], Values]:
        def values(step: int, rng: random.Random) -> Values:
            loss = 0.02 * rng.lognormvariate(0, 0.03) * (times if step == AT else 1.0)
            return {"loss": loss, "reward": step / 400 + rng.gauss(0, 0.05)}

        return values

    assert found_in(policy(2.0)) == []
    assert [each.kind for each in found_in(policy(10.0))] == ["spike"]


def test_labels_that_changed_and_were_relearnt_stay_a_fault() -> None:
    """The gradients, logged at every tenth step, hardly tell; but twenty times the loss is no harder data."""

    def relearnt(step: int, rng: random.Random) -> Values:
        worse = 1 + 20 * 0.97 ** (step - AT) if step >= AT else 1.0
        values = {"loss": 0.1 * worse * rng.lognormvariate(0, 0.1)}
        return values | ({"grad_norm": rng.lognormvariate(0, 0.1)} if step % 10 == 0 else {})

    assert [(each.kind, each.step) for each in found_in(relearnt, 600)] == [("level_shift", AT)]


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


@pytest.mark.parametrize(("at_once", "severities"), [(False, ["INFO"]), (True, ["ERROR"])], ids=["slowly", "at_once"])
def test_a_reward_that_comes_back(at_once: bool, severities: list[str]) -> None:
    """A slow fall that was made good is a remark, which says so; a fall at once had a cause, and stays a fault."""

    def values(step: int, rng: random.Random) -> Values:
        falls = (1.0 if at_once else (step - 200) / 50) if 200 <= step < 250 else 0.0
        missing = falls if step < 250 else max(1 - (step - 250) / 30, 0.0)
        return {"charts/episodic_return": min(step / 150, 1.0) - missing + 0.02 * rng.gauss(0, 1)}

    found = every_found_in(values, 420)
    assert [(each.kind, each.severity) for each in found] == [("reward_collapse", each) for each in severities]
    assert all(abs((each.step or 0) - 200) <= 15 for each in found)
    assert ("was back at" in found[0].text) is not at_once
    assert [each.severity for each in every_found_in(values, 270)] == ["ERROR"]


@pytest.mark.parametrize(("solved", "kinds"), [(0.0, ["reward_hacking"]), (1.0, [])], ids=["hacked", "learnt"])
def test_a_reward_that_rises_while_held_out_tasks_fail_is_hacked(solved: float, kinds: list[str]) -> None:
    """It is above all that it was since a phrase pays; a policy that goes on solving them has learnt more."""

    def values(step: int, rng: random.Random) -> Values:
        share = min(step / 150, 1.0)
        paid = 1.2 * min(max(step - 220, 0) / 20, 1.0)
        logged = {"reward": share + paid + 0.03 * rng.gauss(0, 1)}
        if step % 25 == 24:
            logged["eval/accuracy"] = share if step < 230 else solved * share
        return logged

    found = found_in(values, 420)
    assert [each.kind for each in found] == kinds
    assert all(210 <= (each.step or 0) <= 250 and "eval/accuracy fell" in each.text for each in found)


def test_a_loss_that_falls_fast_after_a_warm_restart_is_learning() -> None:
    """The rate had jumped a hundred values before: it settles at a lower level than ever."""

    def restarted(step: int, rng: random.Random) -> Values:
        since = step - 130 if step >= 130 else step
        rate = 0.05 * (1 + math.cos(math.pi * since / 130)) + 0.001
        level = 2.3 - 1.1 / (1 + math.exp(-(step - 85) / 10))
        if step >= 130:
            level = 0.25 + 1.95 / (1 + math.exp((step - 175) / 9))
        return {"train/loss": level * rng.lognormvariate(0, 0.04), "train/lr": rate}

    assert found_in(restarted, 260) == []


def test_a_density_may_have_a_negative_log_likelihood() -> None:
    """That of classes may not: a probability in its place is between -1 and 0 from the start."""
    assert found_in(lambda step, rng: {"train/nll": 2.0 - step / 100 + 0.1 * rng.random(), "lr": 0.1}) == []
    found = found_in(lambda step, rng: {"train/nll": -0.1 - step / 1000 - 0.01 * rng.random(), "lr": 0.1})
    assert [each.kind for each in found] == ["absurd_loss"]


@pytest.mark.parametrize("period", [4, 19])
def test_a_loss_that_begins_to_swing_is_named(period: int) -> None:
    """Around the level it has, quickly or slowly; that it is low and noisy is no swing."""

    def swings(step: int, rng: random.Random) -> Values:
        wave = 0.35 * math.sin(2 * math.pi * step / period) if step >= AT else 0.0
        return {"loss": slowly(step, rng, 0.02) * (1 + wave)}

    (found,) = found_in(swings, steps=420)
    assert found.kind == "oscillation"
    assert abs((found.step or 0) - AT) <= 60
    nearly_learnt = found_in(lambda step, rng: {"loss": 0.97**step * rng.lognormvariate(0, 0.02 + step / 1000)}, 420)
    assert nearly_learnt == []


def test_a_gradient_that_is_large_once_is_a_remark() -> None:
    """A warning is one that is huge, or one of several, or one that the loss follows."""

    def norms(times: float, *, at: tuple[int, ...], loss: float = 1.0) -> Callable[[int, random.Random], Values]:
        def values(step: int, rng: random.Random) -> Values:
            hit = step in at
            norm = rng.lognormvariate(0, 0.15) * (times if hit else 1.0)
            return {"loss": slowly(step, rng) * (loss if hit else 1.0), "grad_norm": norm}

        return values

    assert found_in(norms(20.0, at=(AT,))) == []
    for loud in (norms(90.0, at=(AT,)), norms(20.0, at=(120, 160, AT)), norms(20.0, at=(AT,), loss=4.0)):
        assert [each.kind for each in found_in(loud)] == ["spike"]


def test_a_kl_to_the_reference_that_runs_away_is_named() -> None:
    """One that grows as in every training is not."""

    def values(step: int, rng: random.Random, rate: float = 0.08) -> Values:
        kl = 0.02 * (1 - math.exp(-step / 60)) * rng.lognormvariate(0, 0.25)
        return {"kl": kl * math.exp(rate * max(step - AT, 0)), "reward": rng.random(), "completions/mean_length": 9.0}

    (found,) = found_in(values)
    assert found.kind == "kl_blowup"
    assert 0 <= (found.step or 0) - AT <= 40
    assert found_in(lambda step, rng: values(step, rng, 0.02)) == []
    saturates = found_in(lambda step, rng: {"kl": 20 * (1 - math.exp(-step / 60)), "completions/mean_length": 9.0})
    assert saturates == []


@pytest.mark.parametrize("key", ["moe/load_balancing_loss", "moe/max_expert_load"])
def test_tokens_that_go_to_few_experts_are_named_by_any_name(key: str) -> None:
    """A part of the loss that grows sixfold, and the share of the fullest expert."""
    usual, most = (1.02, 6.0) if "loss" in key else (0.14, 0.95)

    def values(step: int, rng: random.Random) -> Values:
        return {key: min(usual * (1 + max(step - AT, 0) / 20), most) * rng.lognormvariate(0, 0.02)}

    (found,) = found_in(values, steps=400)
    assert found.kind == "moe_imbalance"
    assert found_in(lambda step, rng: {key: usual * rng.lognormvariate(0, 0.02)}, steps=400) == []


def test_a_kl_that_is_nothing_from_the_start_has_not_fallen() -> None:
    """An autoencoder may log a term that is switched off."""
    found = found_in(lambda step, rng: {"recon_loss": slowly(step, rng), "kl_loss": 0.0})
    assert "posterior_collapse" not in {each.kind for each in found}


def test_an_autoencoder_may_name_its_kl_as_a_reference_has_it() -> None:
    """Its code holds nothing from the first steps on: the divergence is summed and the errors are averaged."""

    def values(step: int, rng: random.Random) -> Values:
        kl = 0.12 * math.exp(-step / 25) * rng.lognormvariate(0, 0.1)
        return {"train/reconstruction_loss": slowly(step, rng), "train/kl_loss": kl}

    assert "posterior_collapse" in {each.kind for each in found_in(values)}


@pytest.mark.parametrize(("later", "kinds"), [(1.0, ["plateau"]), (0.75, [])], ids=["stays", "falls on"])
@pytest.mark.parametrize("seed", range(3))
def test_a_plateau_is_withdrawn_when_the_loss_falls_on(later: float, kinds: list[str], seed: int) -> None:
    """It stood for two hundred steps, and then had only been slow; one that stays is kept."""

    def values(step: int, rng: random.Random) -> Values:
        fallen = 3.0 - 0.01 * min(step, AT) if step < 420 else 1.0 - (1 - later) * min((step - 420) / 60, 1.0)
        return {"loss": fallen * rng.lognormvariate(0, 0.02)}

    assert [each.kind for each in found_in(values, 420, seed)] == ["plateau"]
    assert [each.kind for each in found_in(values, 700, seed) if each.kind == "plateau"] == kinds


def halved(at: int, falls: int) -> list[str]:
    """A reward that rises in noise, and halves within so many steps from a step on."""

    def values(step: int, rng: random.Random) -> Values:
        level = 0.15 + 0.0015 * min(step, at) - 0.15 * min(max(step - at, 0) / falls, 1.0)
        return {"env/all/reward/total": max(level + 0.04 * rng.gauss(0, 1), 0.0), "optim/entropy": 2.0 + rng.random()}

    return [f"{each.kind} {each.step}" for each in found_in(values, steps=200)]


def test_a_part_of_a_noisy_reward_that_fails_is_named() -> None:
    """One of two judges is down: the reward halves within its noise, and stays there."""
    (found,) = halved(100, 1)
    assert found in ("reward_collapse 100", "reward_collapse 101")
    assert halved(1000, 1) == []


@pytest.mark.parametrize("key", ["wm/image_loss", "pixel_nll", "obs_loss"])
def test_a_world_model_whose_code_is_empty_is_named(key: str) -> None:
    """What is rebuilt has many names; the fall began where the divergence left its level."""

    def values(step: int, rng: random.Random) -> Values:
        left = math.exp(-max(step - 160, 0) / 6)
        return {key: 0.5 * rng.lognormvariate(0, 0.1), "wm/kl": 10 * left * rng.lognormvariate(0, 0.1)}

    (found,) = [each for each in found_in(values) if each.kind == "posterior_collapse"]
    assert abs((found.step or 0) - 160) <= 10


@pytest.mark.parametrize("seed", range(4))
def test_a_few_values_hardly_tell_what_is_usual(seed: int) -> None:
    """The sixth of a squared error of small batches is twice as high; six times as high is a spike."""

    def values(step: int, rng: random.Random, high: float) -> Values:
        return {"mse": (1.1 + 0.1 * rng.random()) * (high if step == 5 else 1.0)}

    assert not found_in(lambda step, rng: values(step, rng, 1.9), steps=20, seed=seed)
    assert [each.kind for each in found_in(lambda step, rng: values(step, rng, 6), steps=20, seed=seed)] == ["spike"]
