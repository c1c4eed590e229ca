"""A loss that does not fall: nothing is learnt, or what is learnt does not show in its noise yet."""

import math
import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_STARTED
from stepscope.model.records import Event, Metric
from tests.diagnosis.detectors.test_held_out_and_runaway import found_in

STEPS = 300


def kinds_of(accuracy: Callable[[int], float], seed: int) -> list[str]:
    """Diagnose a noisy loss that falls by two percent in all, and the accuracy beside it."""
    made, rng = Diagnosis(), random.Random(seed)
    for step in range(STEPS):
        loss = 0.65 * (1 - 0.02 * step / STEPS) * rng.lognormvariate(0, 0.08)
        values = {"lr": 1e-3, "logloss": loss, "train_auc": accuracy(step) + rng.gauss(0, 0.03)}
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values))
    return [each.kind for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize("seed", range(5))
def test_an_accuracy_that_rises_says_that_something_is_learnt(seed: int) -> None:
    """The fall of the loss is a quarter of its noise; that of the accuracy is not."""
    assert kinds_of(lambda step: 0.54 + 0.14 * step / STEPS, seed) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "accuracy", [lambda step: 0.54, lambda step: 0.58 - 0.04 * step / STEPS], ids=["constant", "falls"]
)
def test_one_that_does_not_rise_does_not(accuracy: Callable[[int], float], seed: int) -> None:
    """The same loss with an accuracy that stays where it was, or becomes worse."""
    assert kinds_of(accuracy, seed) == ["not_learning"]


@pytest.mark.parametrize("pairs", [12, 24, 48, 256])
def test_pairs_that_are_not_told_apart_within_their_batch_are_named(pairs: int) -> None:
    """The loss soon hardly differs between batches: it is that of guessing among the pairs of one."""

    def at(step: int, level: float, rng: random.Random) -> dict[str, float]:
        return {"lr": 1e-3, "contrastive_loss": level * (1 + 0.2 * math.exp(-step / 10) + 1e-5 * rng.random())}

    (found,) = found_in(lambda step, rng: at(step, math.log(pairs), rng))
    assert found.kind == "not_learning"
    assert f"guessing among {pairs} classes" in found.text
    assert not found_in(lambda step, rng: at(step, 1.0025 * math.log(pairs), rng), steps=200)
    assert not found_in(lambda step, rng: at(step, math.log(pairs) * 0.6 ** (step / 200), rng))


@pytest.mark.parametrize("seed", range(3))
def test_an_accuracy_of_guessing_tells_it_after_a_hundred_values(seed: int) -> None:
    """Labels that were lost, where only a hundred values are logged; with an accuracy that rises nothing is said."""

    def at(right: float, rng: random.Random) -> dict[str, float]:
        return {"train/loss": 0.695 + 0.01 * rng.gauss(0, 1), "train/acc": right + 0.05 * rng.gauss(0, 1)}

    found = found_in(lambda step, rng: at(0.5, rng), steps=120, seed=seed)
    assert [each.kind for each in found] == ["not_learning"]
    assert not found_in(lambda step, rng: at(0.5 + 0.35 * step / 120, rng), steps=120, seed=seed)


@pytest.mark.parametrize(("level", "kinds"), [(math.log(5), ["not_learning"]), (1.45, [])])
def test_a_loss_that_comes_down_to_guessing_and_no_further_is_named(level: float, kinds: list[str]) -> None:
    """One value an epoch beside its evaluation, and a number of classes; another level may be its best."""
    made, rng = Diagnosis(), random.Random(4)
    made.feed(0, Event(10**12, None, None, None, None, 9, EVENT_STARTED, {"config": {"num_classes": 5}}))
    for epoch in range(40):
        loss = level + 4 * math.exp(-epoch / 1.5) + rng.uniform(0, 0.004)
        values = {"loss": loss, "accuracy": 0.4, "val_loss": loss + 0.002, "val_accuracy": 0.4}
        made.feed(0, Metric(10**12 + epoch * 10**9, epoch, None, None, values))
    assert [each.kind for each in made.findings() if each.severity != "INFO"] == kinds


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("learns", [False, True])
def test_a_loss_that_stays_in_noise_is_named_and_one_that_falls_in_it_is_not(seed: int, learns: bool) -> None:
    """An optimizer that has the weights of a copy: the first values may be two percent high by chance."""
    made, rng = Diagnosis(), random.Random(seed)
    for step in range(350):
        level = 2.56 * (1 + 0.015 * (step < 10)) * (1 - 0.12 * learns * step / 350)
        values = {"train_loss": level * rng.lognormvariate(0, 0.06), "grad_norm": 5 * rng.lognormvariate(0, 0.2)}
        made.feed(0, Metric(10**12 + step * 10**8, step, None, None, values))
    loud = [each.kind for each in made.findings() if each.severity != "INFO"]
    assert loud == ([] if learns else ["not_learning"])
