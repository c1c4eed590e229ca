"""A loss that jumps and is learnt again is named although it does not stay; noise and schedules are left alone."""

import math
import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from tests.diagnosis.detectors.test_held_out_and_runaway import Values, found_in

AT = 200


def damaged(rise: float, lasts: float, noise: float = 0.04) -> Callable[[int, random.Random], Values]:
    """A loss that rises by a share at a step, and comes back within some steps."""

    def values(step: int, rng: random.Random) -> Values:
        above = rise * math.exp(-(step - AT) / lasts) if step >= AT else 0.0
        return {"loss": (2.4 + 1.5 / (1 + step / 20)) * (1 + above) * rng.lognormvariate(0, noise), "lr": 1e-3}

    return values


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rise", "lasts"), [(0.5, 15.0), (0.4, 60.0)])
def test_a_loss_that_is_learnt_again_is_named(rise: float, lasts: float, seed: int) -> None:
    """With its step, and the weights among the candidates."""
    (found,) = found_in(damaged(rise, lasts), seed=seed)
    assert found.kind == "level_shift"
    assert abs((found.step or 0) - AT) <= 1
    assert "weights were" in found.cause


def kinds(values: Callable[[int, random.Random], Values], seed: int) -> list[Finding]:
    """What is found in 600 steps."""
    return found_in(values, steps=600, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_small_batches_is_left_alone(seed: int) -> None:
    """Values that differ by half of their size, and hard batches for two steps."""
    assert kinds(damaged(0.0, 1.0, noise=0.5), seed) == []
    assert kinds(damaged(0.4, 1.5), seed) == []


def test_a_rate_that_is_raised_explains_it() -> None:
    """As a warm restart of the schedule does."""

    def values(step: int, rng: random.Random) -> Values:
        return {**damaged(0.3, 15.0)(step, rng), "lr": 1e-3 if step >= AT else 5e-4}

    assert [each.kind for each in found_in(values, config={"schedule": "cosine_with_restarts", "lr": 1e-3})] == []


def disturbed(times: float, rise: float) -> Callable[[int, random.Random], Values]:
    """A loss in noise and the norm of its gradients, which are longer for some steps from one on."""

    def values(step: int, rng: random.Random) -> Values:
        left = math.exp(-(step - AT) / 8) if step >= AT else 0.0
        loss = (0.9 + 2 / (1 + step / 20)) * (1 + rise * left) * rng.lognormvariate(0, 0.14)
        return {"loss": loss, "grad_norm": 0.6 * (1 + (times - 1) * left) * rng.lognormvariate(0, 0.08), "lr": 1e-3}

    return values


def test_gradients_tell_of_weights_that_were_disturbed() -> None:
    """A loss that rises within its noise, and gradients four times as long; half as long again, they do not."""
    runs = [found_in(disturbed(4.0, 0.3), steps=260, seed=seed) for seed in range(6)]
    assert sum(bool(found) for found in runs) >= 5
    for found in (each for some in runs for each in some):
        assert (found.kind, found.key, found.step) == ("level_shift", "grad_norm", AT)
        assert "weights were" in found.cause
    assert [found_in(disturbed(1.5, 0.1), steps=260, seed=seed) for seed in range(6)] == [[]] * 6


@pytest.mark.parametrize("seed", range(4))
def test_a_rise_of_little_more_than_the_noise_is_named_where_it_lasts_some_values(seed: int) -> None:
    """A loss of small batches that doubles and is learnt again within thirty steps; as much noise alone is nothing."""
    (found,) = found_in(damaged(1.3, 20.0, noise=0.2), seed=seed)
    assert found.kind == "level_shift"
    assert abs((found.step or 0) - AT) <= 1
    assert not found_in(damaged(0.0, 20.0, noise=0.2), seed=seed)


def means_of_ten(rise: float, noise: float, at: int = 21) -> Callable[[int, random.Random], Values]:
    """Means of ten steps, of which one is higher by a share, and the next ones by ever less of it."""

    def values(step: int, rng: random.Random) -> Values:
        if step % 10 != 9:
            return {}
        since = step // 10 - at
        above = rise * 0.55**since if since >= 0 else 0.0
        return {"loss": (1.1 + 2 * math.exp(-step / 20)) * (1 + above) * rng.lognormvariate(0, noise)}

    return values


@pytest.mark.parametrize("seed", range(4))
def test_means_of_some_steps_that_leave_their_range_and_come_back_are_named(seed: int) -> None:
    """A layer that was lost and is learnt again shows in three or four of them."""
    (found,) = found_in(means_of_ten(0.6, 0.015), steps=400, seed=seed)
    assert (found.kind, found.step) == ("level_shift", 219)
    assert not found_in(means_of_ten(0.0, 0.015), steps=400, seed=seed)
    assert not found_in(means_of_ten(0.15, 0.05), steps=400, seed=seed)


def other_gradients(times: float, falls: float = 1.0) -> Callable[[int, random.Random], Values]:
    """Gradients that are so many times as long from a step on, and a loss that is so many times what it was."""

    def values(step: int, rng: random.Random) -> Values:
        loss = (0.6 + 1.5 / (1 + step / 20)) * rng.lognormvariate(0, 0.1) * (falls if step >= AT else 1)
        return {"loss": loss, "grad_norm": 0.8 * rng.lognormvariate(0, 0.3) * (times if step >= AT else 1)}

    return values


@pytest.mark.parametrize("times", [5.0, 9.0])
def test_gradients_of_another_length_are_named_though_the_loss_goes_on(times: float) -> None:
    """Sums that are no longer divided hardly show in the loss of an adaptive optimizer."""
    for seed in range(3):
        (found,) = found_in(other_gradients(times), seed=seed)
        assert (found.kind, found.step) in {("gradient_shift", AT + late) for late in range(-1, 3)}, found.text


def test_gradients_that_follow_the_loss_or_vary_are_left_to_others() -> None:
    """A task that is solved at once, and twice the length, are no other scale."""
    assert "gradient_shift" not in [each.kind for each in found_in(other_gradients(1 / 7, falls=0.2))]
    assert not found_in(other_gradients(2.0))
