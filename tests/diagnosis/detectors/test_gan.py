"""Two networks against each other: what one gains the other loses."""

import random

import pytest

from tests.diagnosis.detectors.test_short_runs import Values, kinds_in

AT = 280


def game(step: int, rng: random.Random, sudden: bool) -> Values:
    """A generator that is told to be found out from a step on; or one whose loss has a part that is learnt slowly."""
    since = max(step - AT, 0)
    d_loss = 1.35 - 1.0 * min(since / 40, 1) if sudden else 1.35 - 0.5 * step / 520
    g_loss = 0.7 / (1 + since) if sudden else 0.7 - 0.6 * step / 520
    return {"Loss_D": d_loss * rng.lognormvariate(0, 0.03), "Loss_G": g_loss * rng.lognormvariate(0, 0.1)}


@pytest.mark.parametrize("sudden", [True, False])
def test_losses_of_both_that_fall_at_once_are_no_game(sudden: bool) -> None:
    """A generator that deceives nobody has a high loss, unless it is told the wrong thing."""
    found = kinds_in(lambda step, rng: game(step, rng, sudden), 520)
    if sudden:
        assert abs((found["gan_imbalance"] or 0) - AT) <= 15
    else:
        assert "gan_imbalance" not in found
