"""Bucket bounds by unit."""

import math

import pytest

from stepscope.sdk.otel.bounds import ANY, bounds_for, is_ordered


@pytest.mark.parametrize(
    ("unit", "low", "high"),
    [
        ("s", 0.001, 60.0),
        ("ms", 1.0, 60_000.0),
        ("us", 1000.0, 60e6),
        ("By", 1024.0, 2.0**30),
        ("MiBy", 1.0, 2.0**10),
        ("{token}", 256.0, 65536.0),
        ("tokens", 256.0, 65536.0),
        ("1", 0.5, 1.0),
        ("%", 50.0, 100.0),
        ("{token}/s", 100.0, 100_000.0),
        ("tokens/s", 100.0, 100_000.0),
        ("By/s", 2.0**20, 2.0**30),
    ],
)
def test_bounds_fit_the_unit(unit: str, low: float, high: float) -> None:
    """The range that such a quantity usually has is cut finely: bounds below, several inside, and bounds above."""
    bounds = bounds_for(unit)
    assert is_ordered(bounds)
    assert 10 <= len(bounds) <= 32
    assert bounds[0] < low < high <= bounds[-1]
    assert sum(low <= bound <= high for bound in bounds) >= 4


def test_an_unknown_unit_has_opentelemetrys_bounds() -> None:
    """Nothing is guessed."""
    assert bounds_for("") == bounds_for("{widget}") == bounds_for("widget/h") == ANY


def test_advice_is_taken_when_it_makes_sense() -> None:
    """Advised bounds win over the unit; such as are not in rising order do not."""
    assert bounds_for("s", [1, 2, 3]) == (1.0, 2.0, 3.0)
    assert bounds_for("s", []) == ()
    for wrong in ([3, 1], [1, 1], [math.nan], [math.inf], ["a"], 5):
        assert bounds_for("s", wrong) == bounds_for("s")  # type: ignore[arg-type]
