"""A loss that is summed over its batch is named by its level, or by what it does at a smaller batch."""

import math
import random
from typing import Any

import pytest

from tests.diagnosis.detectors.test_held_out_and_runaway import Logged, Values, found_in, learning


def summed(share: float, every: int = 25, drifts: float = 0.0, noise: float = 0.02) -> Logged:
    """A loss that is lower at every so many steps: by a share that may drift."""

    def values(step: int, rng: random.Random) -> Values:
        low = share + drifts * step if step % every == every - 1 else 1.0
        return {"loss": 16 * learning(step, rng) * low * rng.lognormvariate(0, noise)}

    return values


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_smaller_batch_at_the_end_of_an_epoch_is_named(share: float) -> None:
    """With its share, and the first step at which it shows."""
    (found,) = found_in(summed(share))
    assert (found.kind, found.step) == ("absurd_loss", 24)
    assert "at every 25th value" in found.text
    assert "summed over the batch" in found.cause


@pytest.mark.parametrize(
    "values",
    [summed(0.25, drifts=0.002), summed(0.25, every=4), summed(0.8), summed(0.4, noise=0.5)],
    ids=["an easier batch", "one task of four", "a little lower", "noise"],
)
def test_other_low_values_are_left_alone(values: Logged) -> None:
    """What is easier changes with what is learnt; tasks may take turns."""
    assert "absurd_loss" not in {each.kind for each in found_in(values)}


@pytest.mark.parametrize(
    ("times", "config", "named"),
    [
        (32, {"batch_size": 32, "num_classes": 10}, True),
        (32 * 64, {"batch_size": 32, "vocab_size": 10, "block_size": 64}, True),
        (1, {"batch_size": 32, "num_classes": 10}, False),
        (32, {"num_classes": 10}, False),
    ],
    ids=["a batch", "a batch of tokens", "a mean", "no batch is configured"],
)
def test_a_first_loss_of_so_many_guesses_is_named(times: int, config: dict[str, Any], named: bool) -> None:
    """It is the loss of guessing, once for each example."""

    def values(step: int, rng: random.Random) -> Values:
        return {"train/loss": times * (0.3 + (math.log(10) - 0.3) * math.exp(-step / 50)) * rng.uniform(0.99, 1.01)}

    found = [each for each in found_in(values, config=config) if each.kind == "absurd_loss"]
    assert bool(found) == named
    assert all("summed over the batch" in each.cause and each.step == 0 for each in found)
