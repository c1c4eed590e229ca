"""A lone spike of a loss, in ordinary noise and in noise with a heavy tail."""

import random

import pytest

from tests.diagnosis.detectors.test_short_runs import Logged, Values, every_found_in

AT = 300


def spiked(dear: float, after: float = 1.0) -> Logged:
    """A loss of which some batches cost this many times the others, and one costs two hundred times as much."""

    def logged(step: int, rng: random.Random) -> Values:
        loss = rng.lognormvariate(0, 0.2) * (dear if step % 60 == 50 else 1.0) * (200.0 if step == AT else 1.0)
        return {"train/mse": loss * (after if AT < step < AT + 20 else 1.0)}

    return logged


@pytest.mark.parametrize(
    ("dear", "after", "severity"),
    [(1.0, 1.0, "ERROR"), (4.0, 1.0, "INFO"), (4.0, 60.0, "WARN")],
    ids=["one", "one of many", "one of many that stays"],
)
def test_one_of_many_spikes_is_a_remark(dear: float, after: float, severity: str) -> None:
    """Where single batches stand out again and again one more says nothing, unless the loss stays up after it."""
    found = [each for each in every_found_in(spiked(dear, after), AT + 60) if each.step is not None]
    assert [each.severity for each in found if abs((each.step or 0) - AT) <= 2] == [severity]
