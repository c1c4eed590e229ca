"""What measurements come to, against the plainest way to count them and against the OpenTelemetry SDK."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.records import ExponentialHistogram, Histogram
from stepscope.sdk.otel.aggregate import (
    ANY,
    MAX_BUCKETS,
    Explicit,
    Exponential,
    Sum,
    bounds_for,
    bucket_index,
    fitting,
    is_ordered,
)

BOUNDS = (0.0, 1.0, 2.5, 10.0)
numbers = st.one_of(st.integers(-(10**9), 10**9), st.floats(-1e12, 1e12, allow_nan=False), st.sampled_from(BOUNDS))
batches = st.lists(st.lists(numbers, min_size=1, max_size=30), min_size=1, max_size=5)


@given(st.lists(st.lists(st.integers(), min_size=1), min_size=1))
def test_sums_of_integers_are_exact(batches: list[list[int]]) -> None:
    """No integer is rounded on the way to its sum."""
    total = Sum()
    for batch in batches:
        total.take(list(batch))
    assert total.total == sum(map(sum, batches))


@given(batches)
def test_explicit_buckets_count_each_value_once(batches: list[list[float]]) -> None:
    """Every value is in the bucket whose upper bound is the first not below it, however it came in."""
    histogram = Explicit(BOUNDS)
    for batch in batches:
        histogram.take(list(batch))
    values = [value for batch in batches for value in batch]
    found = histogram.value()
    assert isinstance(found, Histogram)
    limits = [-math.inf, *BOUNDS, math.inf]
    assert list(found.counts) == [
        sum(low < value <= high for value in values) for low, high in itertools.pairwise(limits)
    ]
    assert (found.count, found.low, found.high) == (len(values), min(values), max(values))
    if min(values) < 0:
        assert found.total is None
    else:
        assert found.total == pytest.approx(sum(values))


@given(batches)
def test_exponential_buckets_hold_their_values(batches: list[list[float]]) -> None:
    """Every value is within its bucket, both signs keep within the bound, and nothing is lost."""
    histogram = Exponential()
    for batch in batches:
        histogram.take(list(batch))
    values = [value for batch in batches for value in batch]
    found = histogram.value()
    assert isinstance(found, ExponentialHistogram)
    assert sum(found.positive) + sum(found.negative) + found.zeros == found.count == len(values)
    assert max(len(found.positive), len(found.negative)) <= MAX_BUCKETS
    for sign, offset, counts in (
        (1, found.positive_offset, found.positive),
        (-1, found.negative_offset, found.negative),
    ):
        expected = [0] * len(counts)
        for value in values:
            if value * sign > 0:
                expected[bucket_index(abs(value), found.scale) - offset] += 1
        assert list(counts) == expected


@pytest.mark.parametrize("scale", [-10, -3, 0, 1, 5, 20])
@pytest.mark.parametrize("exponent", [-1000, -300, -1, 0, 1, 52, 1000])
def test_a_power_of_two_is_the_upper_bound_of_its_bucket(scale: int, exponent: int) -> None:
    """Upper bounds are inclusive: base ** (index + 1) is in the bucket, the next float is in the next."""
    value = 2.0**exponent
    exact = (exponent << scale) - 1 if scale > 0 else (exponent - 1) >> -scale
    assert bucket_index(value, scale) == exact
    above = bucket_index(math.nextafter(value, math.inf), scale)
    assert above - exact == (1 if scale >= 0 or exponent % (1 << -scale) == 0 else 0)


def test_the_scale_is_as_fine_as_it_can_be() -> None:
    """One value is kept at the finest scale; a wide range at one that just holds it."""
    one = Exponential()
    one.take([3.0])
    wide = Exponential()
    wide.take([1e-9, 1e9])
    narrow, coarse = one.value(), wide.value()
    assert isinstance(narrow, ExponentialHistogram)
    assert isinstance(coarse, ExponentialHistogram)
    assert (narrow.scale, len(narrow.positive)) == (20, 1)
    assert coarse.scale == 1
    assert MAX_BUCKETS // 2 < len(coarse.positive) <= MAX_BUCKETS


def test_no_number_is_too_large() -> None:
    """Integers beyond 64 bits become floats, and beyond those infinities."""
    assert fitting(2**64 - 1) == 2**64 - 1
    assert fitting(2**64) == 2.0**64
    assert (fitting(10**400), fitting(-(10**400))) == (math.inf, -math.inf)


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
