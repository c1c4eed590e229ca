"""Keys and spans folded point by point."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.journal.key_summary import (
    CURVE_POINTS,
    Curve,
    SpanSummary,
    Stamps,
    importance,
    leading,
    new_key,
    resample,
)
from stepscope.model.records import ExponentialHistogram, Histogram, Span, Summary

numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**62), 2**62)


@given(st.lists(numbers, min_size=1, max_size=200))
def test_a_key_counts_every_point_and_keeps_the_range_of_the_finite_ones(values: list[float]) -> None:
    """No order of values loses a minimum, a maximum or a NaN."""
    key = new_key("loss", 0)
    for time, value in enumerate(values):
        key.add(value, time, time, 0, 1)
    finite = [value for value in values if math.isfinite(value)]
    assert key.count == len(values)
    assert key.non_finite == len(values) - len(finite)
    assert (key.low, key.high) == ((min(finite), max(finite)) if finite else (None, None))
    assert key.last == values[-1] or (key.last != key.last and values[-1] != values[-1])


points = st.lists(st.tuples(numbers | st.booleans(), st.none() | st.integers(-9, 9), st.integers(0, 9)), min_size=1)


@given(st.lists(st.tuples(points, st.integers(0, 1)), max_size=6))
def test_many_points_at_once_are_the_same_as_one_by_one(groups: list[tuple[list[Any], int]]) -> None:
    """Adding points together or one by one gives the same summary, for any values, times and ranks."""
    slow, quick = new_key("loss", 0), new_key("loss", 0)
    for group, rank in groups:
        for value, step, time in group:
            slow.add(value, step, time, rank, 1)
        values, steps, times = zip(*group, strict=True)
        quick.extend(values, Stamps(list(steps), list(times)), rank, 1)
    assert repr(quick) == repr(slow)


@given(st.lists(st.lists(st.floats(-9, 9), max_size=300), max_size=12))
def test_a_curve_drawn_in_parts_is_the_same(parts: list[list[float]]) -> None:
    """A curve does not depend on how its values are split."""
    slow, quick = Curve(), Curve()
    for part in parts:
        for value in part:
            slow.add(value)
        quick.extend(part)
    assert quick == slow


def test_the_last_value_is_of_the_highest_step_in_whatever_order_ranks_are_read() -> None:
    """Steps may go back and writers are read one after the other; the ranks at the last step are averaged."""
    key = new_key("loss", 0)
    key.add(1.0, 5, 100, 0, 1)
    key.add(2.0, 1, 200, 0, 1)
    key.add(3.0, 9, 150, 1, 1)
    key.add(4.0, 9, 120, 2, 1)
    assert (key.last, key.last_step) == (3.5, 9)


@pytest.mark.parametrize(
    "value",
    [
        Histogram(4, 8.0, 1.0, 3.0, (2.0,), (2, 2)),
        ExponentialHistogram(4, 8.0, 1.0, 3.0, 0, 0, 0.0, 0, (4,)),
    ],
)
def test_a_distribution_counts_as_its_mean_and_its_ends(value: Histogram | ExponentialHistogram) -> None:
    """A histogram is one point."""
    key = new_key("latency", 0)
    key.add(value, None, 1, 0, 1)
    assert (key.count, key.last, key.low, key.high) == (1, 2.0, 1.0, 3.0)


def test_a_distribution_without_a_sum_is_not_nan() -> None:
    """Its mean is not known, which is no trouble of the run: only its ends are shown, and nothing counts as NaN."""
    key = new_key("loss", 0)
    key.add(Histogram(4, None, -1.0, 3.0, (2.0,), (2, 2)), 1, 1, 0, 1)
    assert (key.count, key.last, key.low, key.high, key.non_finite) == (1, None, -1.0, 3.0, 0)
    assert key.curve is not None
    assert key.curve.points == []


def test_a_foreign_summary_has_only_a_mean() -> None:
    """For a summary without minimum and maximum, the mean is used for both."""
    key = new_key("latency", 0)
    key.add(Summary(2, 3.0, ((0.5, 1.0),)), None, 1, 0, 1)
    assert (key.last, key.low, key.high) == (1.5, 1.5, 1.5)


@given(st.lists(numbers, max_size=2000))
def test_a_curve_is_bounded_and_shows_the_highest_and_every_stretch_with_a_nan(values: list[float]) -> None:
    """A spike of one point is still there when a million were folded into a hundred."""
    curve = Curve()
    for value in values:
        curve.add(value)
    assert len(curve.points) <= CURVE_POINTS
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) == len(values):
        assert max(curve.points, default=None) == max(values, default=None)
    else:
        assert any(map(math.isnan, curve.points))


@given(st.lists(st.floats(allow_nan=False), max_size=300), st.integers(1, 64))
def test_resampling_never_adds_columns_nor_loses_the_highest(points: list[float], columns: int) -> None:
    """What is drawn is an envelope."""
    drawn = resample(points, columns)
    assert len(drawn) == min(len(points), columns)
    assert max(drawn, default=None) == max(points, default=None)


def test_only_the_first_rank_is_drawn() -> None:
    """The curves of several ranks are not put one behind the other."""
    key = new_key("loss", 0)
    for rank in (0, 1):
        for time in range(10):
            key.add(1.0, time, time, rank, 1)
    assert key.count == 20
    assert key.curve is not None
    assert len(key.curve.points) == 10


def test_losses_lead_and_the_machine_comes_last() -> None:
    """The few keys in a list are those that say most."""
    keys = [
        "system/cpu/utilization",
        "trainer/lr",
        "eval/accuracy",
        "misc/x",
        "trainer/train_loss",
        "actor/reward",
    ]
    assert leading(keys, 4) == ["trainer/train_loss", "actor/reward", "eval/accuracy", "trainer/lr"]
    assert importance("glossary") == importance("misc/x")
    assert new_key("misc/x", 0).curve is None


def test_spans_keep_exact_statistics() -> None:
    """The median is that of all durations."""
    spans = SpanSummary("train.step")
    for number, duration in enumerate((5, 1, 3, 100)):
        spans.add(Span(0, duration, None, None, b"", number.to_bytes(8, "big"), None, "s", status=2 * (number == 0)))
    assert (spans.count, spans.mean, spans.p50, spans.longest, spans.errors) == (4, 27.25, 4.0, 100, 1)
