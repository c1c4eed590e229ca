"""Losses that are exactly the same: always, or zero from some value on."""

import math
import random

import pytest

from tests.diagnosis.detectors.test_held_out_and_runaway import Values, found_in, learning


@pytest.mark.parametrize("every", [1, 5])
def test_a_loss_that_has_always_been_the_same_is_named(every: int) -> None:
    """A reference that is the policy itself: the loss is ln 2 in every batch, though gradients differ."""

    def values(step: int, rng: random.Random) -> Values:
        return {"loss": math.log(2), "grad_norm": 0.5 + 0.1 * rng.random()} if step % every == 0 else {}

    (found,) = found_in(values, steps=300)
    assert (found.kind, found.key, found.step) == ("not_learning", "loss", 0)
    (other,) = found_in(lambda step, rng: {key: 0.7 * each for key, each in values(step, rng).items()}, steps=300)
    assert other.kind == "constant"
    assert "one and the same" in other.cause


@pytest.mark.parametrize("key", ["best_loss", "target_loss", "val/loss_target"])
def test_a_record_or_a_target_may_be_the_same(key: str) -> None:
    """They are not computed from batches; nor is anything said where nothing else changes."""
    assert not found_in(lambda step, rng: {key: 0.3, "train/loss": learning(step, rng)})
    assert not found_in(lambda step, rng: {"loss": 0.5})


def part(zero_from: int, nears: bool) -> list[str]:
    """Two losses, of which one becomes zero at a step, at once or after it has come near."""

    def values(step: int, rng: random.Random) -> Values:
        level = (0.3 * math.exp(-step / 25) if nears else 0.3) * (step < zero_from)
        return {"loss_box": level * rng.lognormvariate(0, 0.2), "loss_mask": learning(step, rng)}

    return [f"{each.kind} {each.key} {each.step}" for each in found_in(values)]


def test_a_part_of_the_loss_that_is_zero_at_once_is_named() -> None:
    """Its rows have ended or its mask is empty; one that is learnt comes near zero first."""
    assert part(150, nears=False) == ["constant loss_box 150"]
    assert part(150, nears=True) == []
