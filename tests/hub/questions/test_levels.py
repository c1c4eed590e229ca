"""How unusual a value or a span of a step is."""

import math

import pytest

from stepscope.hub.questions.step.step_sql import value_level
from stepscope.hub.questions.traces import slow_level


@pytest.mark.parametrize(
    ("value", "mean", "z", "level"),
    [
        (1.0, 1.0, 0.0, 0), (1.5, 1.0, 2.9, 0), (1.5, 1.0, 3.0, 1), (1.5, 1.0, -6.0, 2), (1.5, 1.0, 10.0, 3),
        (1001.0, 1000.0, 40.0, 1), (math.nan, 1.0, None, 3), (-math.inf, 1.0, None, 3), (5.0, 1.0, None, 0),
    ],
)  # fmt: skip
def test_values_have_a_level(value: float, mean: float, z: float | None, level: int) -> None:
    """By deviations from the mean; a schedule that moves a little, however evenly, is at most notable."""
    assert value_level(value, mean, value - mean, z) == level


@pytest.mark.parametrize(
    ("milliseconds", "usual", "level"),
    [(10, 10, 0), (14.9, 10, 0), (15, 10, 1), (29, 10, 1), (30, 10, 2), (0.9, 0.1, 0), (None, 10, 0), (50, None, 0)],
)
def test_spans_have_a_level(milliseconds: float | None, usual: float | None, level: int) -> None:
    """By how many times the usual they took, when that is a millisecond more at least."""
    took, ordinary = (None if each is None else each * 1e6 for each in (milliseconds, usual))
    assert slow_level(took, ordinary) == level
