"""Adding and subtracting counts, checked against the values that were counted."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.wire.otlp.encode.histogram_points import add, subtract

BOUNDS = (0.0, 1.0, 10.0)
values = st.lists(st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6), max_size=20)
scales = st.integers(-4, 6)


def explicit(observed: Sequence[float]) -> Histogram:
    """Count values into explicit buckets."""
    counts = [0] * (len(BOUNDS) + 1)
    for value in observed:
        counts[sum(value > bound for bound in BOUNDS)] += 1
    low, high = (min(observed), max(observed)) if observed else (None, None)
    return Histogram(len(observed), math.fsum(observed), low, high, BOUNDS, tuple(counts))


def exponential(observed: Sequence[float], scale: int) -> ExponentialHistogram:
    """Count values into exponential buckets (base**i, base**(i+1)]."""
    sides: tuple[dict[int, int], dict[int, int]] = {}, {}
    for value in observed:
        if value:
            index = math.ceil(math.log2(abs(value)) * 2.0**scale) - 1
            side = sides[value < 0]
            side[index] = side.get(index, 0) + 1
    listed = []
    for side in sides:
        first = min(side, default=0)
        listed += [first, tuple(side.get(index, 0) for index in range(first, max(side, default=first - 1) + 1))]
    low, high = (min(observed), max(observed)) if observed else (None, None)
    return ExponentialHistogram(
        len(observed), math.fsum(observed), low, high, scale, list(observed).count(0), 0.0, *listed
    )


def counted(value: object) -> tuple[object, ...]:
    """What can be compared exactly: everything but the sum."""
    if isinstance(value, Histogram):
        return value.count, value.low, value.high, value.counts
    assert isinstance(value, ExponentialHistogram)
    return (
        value.count, value.low, value.high, value.scale, value.zeros, value.positive_offset, value.positive,
        value.negative_offset, value.negative,
    )  # fmt: skip


@given(values.filter(bool), values.filter(bool))
def test_histograms_add_up(first: list[float], second: list[float]) -> None:
    """Adding counts is counting all values."""
    total = add(explicit(first), explicit(second))
    assert counted(total) == counted(explicit(first + second))


@given(values, values)
def test_histograms_subtract(first: list[float], second: list[float]) -> None:
    """Subtracting leaves the later values; their extremes are unknown."""
    passed = subtract(explicit(first + second), explicit(first))
    assert isinstance(passed, Histogram)
    assert (passed.count, passed.counts) == (len(second), explicit(second).counts)
    assert (passed.low, passed.high) == (None, None)


@given(values.filter(bool), values.filter(bool), scales, scales)
def test_exponential_histograms_add_up_at_the_coarser_scale(
    first: list[float], second: list[float], one: int, other: int
) -> None:
    """Exponential histograms of any scales are added at the coarser scale."""
    total = add(exponential(first, one), exponential(second, other))
    scale = min(one, other)
    coarse = add(exponential(first, scale), exponential(second, scale))
    assert counted(total)[4:5] + counted(total)[:4] == counted(coarse)[4:5] + counted(coarse)[:4]
    assert isinstance(total, ExponentialHistogram)
    assert sum(total.positive) + sum(total.negative) + total.zeros == len(first) + len(second)


@given(values, values, scales)
def test_exponential_histograms_subtract(first: list[float], second: list[float], scale: int) -> None:
    """Adding back gives the whole."""
    whole, before = exponential(first + second, scale), exponential(first, scale)
    passed = subtract(whole, before)
    assert isinstance(passed, ExponentialHistogram)
    assert passed.count == len(second)
    assert sum(passed.positive) == sum(value > 0 for value in second)
    back = add(before, passed)
    assert isinstance(back, ExponentialHistogram)
    assert (back.positive_offset if back.positive else 0, back.positive) == (
        whole.positive_offset if whole.positive else 0,
        whole.positive,
    )


def test_a_bucket_split_two_ways_is_two_neighbours_in_one() -> None:
    """Downscaling by one merges (1, 2] and (2, 4] into (1, 4]."""
    fine = ExponentialHistogram(3, 6.0, None, None, 0, 0, 0.0, 0, (1, 2))
    coarse = ExponentialHistogram(1, 1.5, None, None, -1, 0, 0.0, 0, (1,))
    total = add(fine, coarse)
    assert isinstance(total, ExponentialHistogram)
    assert (total.scale, total.positive_offset, total.positive) == (-1, 0, (4,))


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        (3, 5),
        (explicit([1.0]), explicit([1.0, 2.0])),
        (explicit([1.0, 1.0]), explicit([5.0])),
        (explicit([1.0]), Histogram(0, 0.0, None, None, (), ())),
        (exponential([1.0], 0), exponential([1.0, 1.0], 0)),
        (exponential([1.0, 1.0], 0), exponential([9.0], 0)),
        (exponential([1.0, 1.0], 3), exponential([1.0], 2)),
        (3, explicit([1.0])),
        (Summary(1, 1.0, ()), Summary(1, 1.0, ())),
    ],
)
def test_what_cannot_have_grown_was_reset(later: object, earlier: object) -> None:
    """Smaller counts, other buckets, another type."""
    assert subtract(later, earlier) is None


def test_histograms_far_apart_are_not_added() -> None:
    """A hostile offset does not fill the memory."""
    near = ExponentialHistogram(1, 1.0, None, None, 0, 0, 0.0, -(2**31), (1,))
    far = ExponentialHistogram(1, 1.0, None, None, 0, 0, 0.0, 2**31 - 1, (1,))
    assert add(near, far) is None
