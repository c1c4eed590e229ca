"""The last value of a metric: one table of cases for Python, the page's JavaScript, the store and the terminal."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stepscope.model.last_value import LastValue, describe, last_of, mean

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("last_value.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["said"])
def test_each_case_has_one_value_and_one_text(case: dict[str, Any]) -> None:
    """The mean of the ranks at the last step, in whatever order the points come."""
    points = [(float(value), rank, attempt, step, time) for rank, attempt, step, time, value in case["points"]]
    for given in (points, points[::-1]):
        last = last_of(given)
        assert last.value == pytest.approx(float(case["value"]), rel=1e-12, nan_ok=True)
        assert (list(last.by_rank), last.step) == (case["ranks"], case["step"])
        assert describe(len(last.by_rank), last.step) == case["text"]


def test_nothing_has_no_last_value() -> None:
    """A summary without points has no last value, step or time."""
    assert (LastValue().value, LastValue().step, LastValue().time) == (None, None, 0)


def test_the_mean_keeps_equal_values_and_cannot_overflow() -> None:
    """Equal integers keep all digits; opposite infinities have no mean."""
    assert mean([2**62 + 1, 2**62 + 1]) == 2**62 + 1
    assert mean([1.7e308] * 3 + [1.6e308]) == pytest.approx(1.675e308)
    assert math.isnan(mean([math.inf, -math.inf]))
