"""The same faults in runs that log every step or every fiftieth, with few evaluations or many: each is named in all."""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

Values = dict[str, float]
Curve = Callable[[float], float]
"""A value at a share of the run, from 0 to 1."""
DENSITIES = [(48, 5, 6), (72, 5, 9), (100, 10, 10), (200, 1, 5), (500, 1, 10), (60, 50, 12)]
"""Values of the training, steps between two of them, and evaluations."""


def learnt(share: float) -> float:
    """A loss that comes down."""
    return 0.7 + 2.3 * math.exp(-6 * share)


def found_in(
    density: tuple[int, int, int], train: Curve, held_out: Curve, others: Callable[[float], Values] = lambda _: {}
) -> list[Finding]:
    """Diagnose a run of these curves."""
    made, rng = Diagnosis(), random.Random(3)
    count, apart, evaluations = density
    done = 0
    for at in range(count):
        step, share = (at + 1) * apart - 1, at / (count - 1)
        values = {"train/loss": train(share) * rng.lognormvariate(0, 0.03), "train/learning_rate": 1e-3}
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values | others(share)))
        while evaluations and done < evaluations and (at + 1) / count >= (done + 1) / evaluations - 1e-9:
            done += 1
            value = held_out(done / evaluations) * rng.lognormvariate(0, 0.003)
            made.feed(0, Metric(10**12 + step * 10**8, step, None, None, {"eval/loss": value}))
    return [each for each in made.findings() if each.severity != "INFO"]


def kinds(found: list[Finding]) -> set[str]:
    """Their kinds."""
    return {each.kind for each in found}


def healthy_curves() -> Iterator[tuple[Curve, Curve]]:
    """Losses that come down, fast or slowly, and held-out ones beside them that stay or rise a little at their end."""
    yield learnt, lambda share: 1.05 * learnt(share)
    yield lambda share: 3 - 2 * share, lambda share: 3.05 - 2 * share
    yield learnt, lambda share: 1.1 * learnt(share) * (1 + 0.03 * max(share - 0.6, 0))


@pytest.mark.parametrize("density", DENSITIES)
def test_what_is_learnt_is_left_alone(density: tuple[int, int, int]) -> None:
    """However often it is logged."""
    for train, held_out in healthy_curves():
        assert found_in(density, train, held_out) == []


@pytest.mark.parametrize("density", DENSITIES)
def test_a_held_out_loss_that_turns_is_overfitting(density: tuple[int, int, int]) -> None:
    """By a third, steadily, in as few evaluations as there are, while the loss of the training still falls."""
    found = found_in(
        density,
        lambda share: 2.9 * math.exp(-3.5 * share),
        lambda share: 1.1 * learnt(share) + max(0.0, share - 0.3) * 0.9,
    )
    assert kinds(found) == {"overfit"}


@pytest.mark.parametrize("density", DENSITIES)
def test_a_loss_that_rises_to_another_level_is_a_shift(density: tuple[int, int, int]) -> None:
    """Half way, to twice its level, though it had begun far above that."""
    found = found_in(
        density,
        lambda share: learnt(share) + 0.8 * (share >= 0.5),
        lambda share: 1.05 * learnt(share) + 0.8 * (share > 0.5),
    )
    assert "level_shift" in kinds(found)
    half = density[0] * density[1] / 2
    assert abs((found[0].step or 0) - half) <= max(3 * density[1], 10)


@pytest.mark.parametrize("density", [each for each in DENSITIES if each[2] > 5 and each[0] * each[1] > 300])
def test_a_loss_that_never_falls_is_no_learning_where_evaluations_say_so(density: tuple[int, int, int]) -> None:
    """Without a gradient norm or an accuracy beside it."""
    assert kinds(found_in(density, lambda _: 3.1, lambda _: 3.1)) == {"not_learning"}


@pytest.mark.parametrize("density", DENSITIES)
def test_a_loss_that_was_only_ever_above_its_start_diverges(density: tuple[int, int, int]) -> None:
    """With an accuracy or a held-out loss that got worse with it; alone it may be what the loss is made of."""

    def worse(share: float) -> float:
        return 2.0 + 1.2 * (1 - math.exp(-8 * share))

    found = found_in(density, worse, lambda share: 2.6 + 0.7 * share)
    assert "divergence" in kinds(found)
    known = found_in(
        (*density[:2], 0), worse, learnt, lambda share: {"train/accuracy": 0.4 - 0.25 * (1 - math.exp(-8 * share))}
    )
    assert "divergence" in kinds(known)


def game(share: float, falls: float) -> Values:
    """A reward of two parts of which one is an accuracy."""
    right = 0.4 - falls * (1 - math.exp(-5 * share))
    judged = 1.1 + 1.1 * (1 - math.exp(-5 * share))
    return {"reward": right + judged, "rewards/accuracy_reward/mean": right, "rewards/judge_reward/mean": judged}


def graded(falls: float) -> set[str]:
    """The kinds of what is found in two hundred updates with such rewards."""
    made, rng = Diagnosis(), random.Random(2)
    for step in range(200):
        values = {key: value + rng.gauss(0, 0.02) for key, value in game(step / 200, falls).items()}
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values | {"kl": 0.01, "entropy": 0.5}))
    return kinds([each for each in made.findings() if each.severity != "INFO"])


def test_a_reward_that_rises_at_the_cost_of_a_part_of_it_is_hacked() -> None:
    """The accuracy among its parts falls to a fifth, while their sum rises; one that keeps most of it is a trade."""
    assert "reward_hacking" in graded(0.32)
    assert "reward_hacking" not in graded(0.1)


def norms(even: float) -> list[Finding]:
    """A loss of noisy batches, and gradient norms that grow in the first steps and then vary by so much."""
    made, rng = Diagnosis(), random.Random(3)
    for step in range(120):
        norm = 13 * (1 - 0.6 * math.exp(-step / 4)) * rng.lognormvariate(0, even)
        values = {"loss": (2.7 + math.exp(-step / 40)) * rng.lognormvariate(0, 0.05), "grad_norm": norm}
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values))
    return [each for each in made.findings() if each.severity != "INFO"]


def test_norms_that_do_not_vary_with_the_batches_are_sums() -> None:
    """From the start on, by a thousandth where the loss varies by a twentieth; usual ones vary as it does."""
    (found,) = norms(0.0005)
    assert (found.kind, found.step) == ("gradient_shift", 0)
    assert norms(0.05) == []


def scaled(values: list[float]) -> list[Finding]:
    """Diagnose a loss scale."""
    made = Diagnosis()
    for step, value in enumerate(values):
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, {"loss-scale": value, "lm loss": 1.5}))
    return [each for each in made.findings() if each.kind == "scaler_collapse"]


def test_a_loss_scale_that_rose_shortly_before_it_fell_has_collapsed() -> None:
    """The fall begins after the value that was held last, and single halvings long before are no part of it."""
    down = [2.0**power for power in range(18, -1, -1)]
    (found,) = scaled([2.0**18] * 60 + [2.0**19] * 3 + down + [1.0] * 20)
    assert found.step == 62
    (found,) = scaled([2.0**19] * 60 + [2.0**18] * 60 + down[1:] + [1.0] * 20)
    assert found.step == 119
    assert scaled([2.0**19] * 60 + [2.0**18] * 60 + [2.0**17] * 60) == []


def lengths(perplexity: bool) -> list[Finding]:
    """A curriculum of longer texts: the loss rises at once and comes down again."""
    made, rng = Diagnosis(), random.Random(4)
    for step in range(300):
        harder = 0.0 if step < 150 else 1.2 * math.exp(-(step - 150) / 30)
        loss = (0.8 + math.exp(-step / 20) + harder) * rng.lognormvariate(0, 0.02)
        values = {"loss": loss, "curriculum/length": 8.0 if step < 150 else 16.0}
        if perplexity:
            values["ppl"] = math.exp(1.3 * loss)
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values))
    return [each for each in made.findings() if each.severity != "INFO"]


def test_a_perplexity_tells_no_rise_that_its_loss_does_not_tell() -> None:
    """It rises by as many times as the loss in nats."""
    assert lengths(perplexity=False) == []
    assert lengths(perplexity=True) == []


def test_a_loss_of_values_that_grow_without_end_diverges_where_few_rewards_are_logged() -> None:
    """Twenty-odd rewards say that the policy does not get better."""
    made, rng = Diagnosis(), random.Random(6)
    for update in range(180):
        step, loss = 5 * update, 1.5 * math.exp(0.11 * update) * rng.lognormvariate(0, 0.2)
        values = {"losses/td_loss": loss, "losses/q_values": -math.sqrt(loss)}
        if update % 7 == 0:
            values["charts/episodic_return"] = -50 + rng.gauss(0, 6)
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values))
    assert "divergence" in kinds([each for each in made.findings() if each.severity != "INFO"])


def test_a_part_of_a_loss_may_begin_near_zero_while_their_sum_falls() -> None:
    """A residual that is small as long as the network is nothing; without a sum that falls it diverges."""

    def found(summed: bool) -> set[str]:
        made, rng = Diagnosis(), random.Random(7)
        for step in range(50):
            part = (0.06 + 0.9 * (1 - math.exp(-step / 6))) * rng.lognormvariate(0, 0.05)
            values = {"loss_pde": part} | ({"loss": part + 7 * math.exp(-step / 15)} if summed else {})
            made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values))
        return kinds([each for each in made.findings() if each.severity != "INFO"])

    assert "divergence" in found(summed=False)
    assert "divergence" not in found(summed=True)


def test_a_held_out_density_that_is_negative_from_its_first_evaluation_is_possible() -> None:
    """Where that of the training began above zero; one that never did is a probability in the place of a logarithm."""

    def found(began: float) -> set[str]:
        made, rng = Diagnosis(), random.Random(8)
        for step in range(400):
            nll = -0.9 + (began + 0.9) * math.exp(-step / 12) + rng.gauss(0, 0.02)
            made.feed(0, Metric(10**12 + step * 10**8, step, None, None, {"train/nll": nll}))
            if step % 50 == 49:
                held_out = {"val/nll": -0.9 + 0.6 * math.exp(-step / 120)}
                made.feed(0, Metric(10**12 + step * 10**8, step, None, None, held_out))
        return kinds([each for each in made.findings() if each.severity != "INFO"])

    assert "absurd_loss" not in found(6.0)
    assert "absurd_loss" in found(-0.2)
