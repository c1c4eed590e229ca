"""A loss that does not fall: nothing is learnt, or what is learnt does not show in its noise yet."""

import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

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
