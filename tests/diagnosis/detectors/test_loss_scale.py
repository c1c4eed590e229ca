"""A loss scale that collapses, with what is logged beside it."""

import random

from tests.diagnosis.detectors.test_short_runs import Values, kinds_in

AT = 150


def scaled(step: int, rng: random.Random, *, collapses: bool) -> Values:
    """A scale that was halved now and then, and is halved at every step from one on; each step then is skipped."""
    skips = collapses and step >= AT
    scale = 2.0 ** (17 - (step >= 60) - (step >= 110)) / 2.0 ** min(max(step - AT, 0) * skips, 16)
    return {"loss-scale": scale, "skipped iterations": float(skips or step in (60, 110)), "lm loss": 2 - step / 400}


def test_a_collapse_begins_where_halvings_come_one_after_the_other() -> None:
    """A halving forty steps before is the ordinary search for the largest scale."""
    found = kinds_in(lambda step, rng: scaled(step, rng, collapses=True), 220)
    assert abs((found["scaler_collapse"] or 0) - AT) <= 1
    assert kinds_in(lambda step, rng: scaled(step, rng, collapses=False), 220) == {}


def test_a_flag_of_skipped_steps_that_stays_is_no_sum() -> None:
    """1 in each report: every step is skipped; a count since the start that stays at 1 is one skipped step."""

    def flag(step: int, rng: random.Random) -> Values:
        return {"skipped iterations": float(step >= AT or step == 80)}

    assert abs((kinds_in(flag, 220)["skipped_steps"] or 0) - AT) <= 12
    assert kinds_in(lambda step, rng: {"skipped iterations": float(step >= 20)}, 220) == {}
