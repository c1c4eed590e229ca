"""Quantiles along a run, of spans, of points and of histograms that add up."""

from typing import Any

import pytest

from stepscope.hub.questions.distributions import DistributionRow
from stepscope.hub.questions.distributions.quantiles import Extent, bucket_counts, histogram_quantiles, quantile
from stepscope.hub.store.read.run_catalog import SeriesRow
from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SPIKE, STEPS


def test_durations_of_spans(get: Get) -> None:
    """Durations are in ms, with one interval per step if they fit."""
    found = get("/api/runs/big/quantiles", span="train.step")
    (line,) = found["series"]
    assert found["q"] == [0.5, 0.99]
    assert line["columns"]["x"] == list(range(STEPS))
    assert line["columns"]["count"] == [2] * STEPS
    assert (line["columns"]["q0.5"][0], line["columns"]["q0.99"][SPIKE]) == (300.0, 900.0)


def test_points(get: Get) -> None:
    """Values that are not finite do not count; stretches hold many steps where they must."""
    found = get("/api/runs/big/quantiles", key="trainer/loss", q=["0", "1"], points=4)
    (line,) = found["series"]
    assert line["columns"]["count"] == [60, 60, 60, 59]
    assert max(line["columns"]["q1"]) == 50.0
    timed = get("/api/runs/big/quantiles", key="trainer/loss", x="time", points=2)["series"][0]
    assert len(timed["columns"]["x"]) == 2
    assert timed["columns"]["x"][0] > 1e9


def test_nothing_and_nonsense(get: Get) -> None:
    """Spans that a run does not have are empty; a quantile is a number from 0 to 1."""
    (line,) = get("/api/runs/big/quantiles", span="nothing")["series"]
    assert line["columns"] == {"x": [], "x_last": [], "count": [], "q0.5": [], "q0.99": []}
    for wrong in ("x", "2", "nan", "-1"):
        assert "from 0 to 1" in get("/api/runs/big/quantiles", expect=400, key="a", q=wrong)["error"]["message"]


def histogram(*counts: int) -> Histogram:
    """Counts between 0, 10, 20 and beyond."""
    return Histogram(sum(counts), None, 0.0, 30.0, (10.0, 20.0), counts)


def test_interpolation() -> None:
    """A quantile is interpolated within its bucket."""
    counted = bucket_counts(histogram(10, 10, 0))
    assert counted is not None
    assert quantile(counted, 0.5) == 10.0
    assert quantile(counted, 0.75) == 15.0
    assert quantile(counted, 1.0) == 20.0
    assert quantile({(5.0, 6.0): 4.0}, 0.0) == 5.0


def test_exponential_and_summaries() -> None:
    """Exponential buckets have their bounds by scale and offset; a summary has no buckets."""
    made = ExponentialHistogram(4, None, None, None, 0, 1, 0.0, 1, (2,), 0, (1,))
    assert bucket_counts(made) == pytest.approx({(0.0, 0.0): 1.0, (2.0, 4.0): 2.0, (-2.0, -1.0): 1.0})
    assert bucket_counts(Summary(1, 1.0, ())) is None


def recorded(at: int, value: Any, start: int = 0) -> tuple[int, DistributionRow]:
    """A distribution and its x."""
    line = SeriesRow(1, "latency", "", 0, "histogram", "s", "", {})
    return at, DistributionRow(line, 1, None, at, start, value)


def test_cumulative_histograms_are_subtracted() -> None:
    """Each bucket has what was counted in it, also after the series was reset."""
    extent = Extent("time", 0, 3, 4)
    records = [
        recorded(0, histogram(4, 0, 0)),
        recorded(1, histogram(4, 4, 0)),
        recorded(2, histogram(4, 4, 0)),
        recorded(3, histogram(2, 0, 0), start=3),
    ]
    found = histogram_quantiles(records, {1: True}, extent, [0.5])
    assert (found.first, found.count) == ([0, 1, 3], [4, 4, 2])
    assert found.values == [[5.0, 15.0, 5.0]]
    deltas = histogram_quantiles([recorded(0, histogram(4, 0, 0))] * 2, {1: False}, extent, [0.5])
    assert deltas.count == [8]
