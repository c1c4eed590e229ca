"""Distributions along a run, exemplars, and lines split by attributes."""

import math
from typing import Any

import pytest

from stepscope.hub.questions.distributions import buckets
from stepscope.hub.service import Hub
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import ExponentialHistogram, Histogram, Instrument, Metric, Record, Summary
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START

TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))
DELTA, CUMULATIVE = Instrument("histogram", "s", "", False), Instrument("histogram", "s", "", True)
STEPS = 50


@pytest.fixture(scope="module", autouse=True)
def _run(hub: Hub) -> None:
    """A run with histograms of every kind at each of 50 steps, and a metric of two attribute sets."""
    hub.store.write(Batch(Writer(id="w", run="spread", project="gpt", wall_ns=START), 1, distributions()))


def distributions() -> list[Record]:
    """Histograms of every kind, exemplars and attributes."""
    found: list[Record] = []
    for step in range(STEPS):
        time = START + step * SECOND
        shape = Histogram(3, 1.5 * step, 0.0, float(step), (1.0, 2.0), (1, 2, 0))
        grown = Histogram(3 * (step + 1), None, None, None, (1.0, 2.0), (step + 1, 2 * (step + 1), 0))
        exemplar = {"value": step / 2, "time": time, "trace_id": TRACE.hex(), "span_id": SPAN.hex(), "attrs": {"u": 1}}
        found += [
            Metric(time, step, None, None, {"weights": shape}),
            Metric(time, step, None, None, {"wait": shape}, {ATTR_EXEMPLARS: [exemplar, "odd", {"value": "x"}]}, DELTA),
            Metric(time, step, None, None, {"served": grown}, {}, CUMULATIVE),
            Metric(time, step, None, None, {"split": float(step)}, {"pool": "a" if step % 2 else "b"}),
        ]
    found.append(Metric(START, None, None, None, {"rest": Summary(2, 3.0, ((0.5, 1.0), (0.9, math.nan)))}))
    return found


def _histograms(get: Get, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get("/api/runs/spread/histograms", **params)["series"]
    return found


def test_raw(get: Get) -> None:
    """What fits is given as it was recorded."""
    (line,) = _histograms(get, key="weights", points=50)
    assert (line["total"], line["shown"], line["cumulative"], line["attrs"]) == (50, 50, False, {})
    row = line["rows"][7]
    expected = {"x": 7, "step": 7, "merged": 1, "count": 3, "sum": 10.5, "min": 0.0, "max": 7.0, "quantiles": []}
    assert expected.items() <= row.items()
    assert (row["bounds"], row["counts"]) == ([1.0, 2.0], [1, 2, 0])


def test_thinned(get: Get) -> None:
    """Of more than fit, the last of each stretch is given: snapshots and cumulative ones are not added."""
    for key in ("weights", "served"):
        (line,) = _histograms(get, key=key, points=10)
        assert [row["x"] for row in line["rows"]] == list(range(4, 50, 5))
        assert (line["total"], {row["merged"] for row in line["rows"]}) == (50, {1})
    assert line["rows"][-1]["counts"] == [50, 100, 0]


def test_added(get: Get) -> None:
    """Those that each count anew are added up, so that nothing that happened is missing."""
    (line,) = _histograms(get, key="wait", points=10)
    assert [row["count"] for row in line["rows"]] == [15] * 10
    assert [row["merged"] for row in line["rows"]] == [5] * 10
    last = line["rows"][-1]
    assert (last["counts"], last["max"], last["sum"], last["step"]) == ([5, 10, 0], 49.0, 1.5 * sum(range(45, 50)), 49)


def test_range_and_time(get: Get) -> None:
    """A part of x, by step and by time; a summary has no step and is found by time."""
    (line,) = _histograms(get, key="weights", **{"from": 10}, to=19)
    assert [row["x"] for row in line["rows"]] == list(range(10, 20))
    begun = START / 1e9
    (line,) = _histograms(get, key="weights", x="time", **{"from": begun + 10}, to=begun + 12)
    assert [row["step"] for row in line["rows"]] == [10, 11, 12]
    assert _histograms(get, key="rest") == []
    (line,) = _histograms(get, key="rest", x="time")
    assert line["rows"][0]["quantiles"] == [[0.5, 1.0], [0.9, "NaN"]]


def test_nothing(get: Get) -> None:
    """A metric without distributions has none."""
    assert _histograms(get, key="split") == []
    assert get("/api/runs/spread/exemplars", key="weights")["exemplars"] == []


def test_exemplars(get: Get) -> None:
    """Exemplars link a point to its span; invalid ones are left out."""
    found = get("/api/runs/spread/exemplars", key="wait", limit=1000)["exemplars"]
    assert [each["step"] for each in found] == list(range(49, -1, -1))
    first = found[0]
    assert (first["value"], first["trace_id"], first["span_id"]) == (24.5, TRACE.hex(), SPAN.hex())
    assert first["attrs"] == {"u": 1}


def test_lines_by_attributes(get: Get) -> None:
    """Each set of attributes is a line of its own when asked; together they are one."""
    together = get("/api/runs/spread/series", key="split")["series"]
    assert [(line["attrs"], line["total"]) for line in together] == [(None, 50)]
    apart = get("/api/runs/spread/series", key="split", by_attrs="true")["series"]
    assert [(line["attrs"], line["total"]) for line in apart] == [({"pool": "a"}, 25), ({"pool": "b"}, 25)]
    assert apart[0]["columns"]["value"][:3] == [1.0, 3.0, 5.0]


def _exponential(**fields: Any) -> ExponentialHistogram:
    plain: dict[str, Any] = {"zeros": 1, "positive_offset": 0, "positive": (), "negative_offset": 0, "negative": ()}
    return ExponentialHistogram(9, None, None, None, fields.pop("scale", 0), zero_threshold=0.0, **{**plain, **fields})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_exponential(), ([], [1])),
        (_exponential(positive=(2, 3)), ([1.0, 2.0, 4.0], [1, 2, 3, 0])),
        (_exponential(negative=(2, 3), negative_offset=1), ([-8.0, -4.0, -2.0], [0, 3, 2, 1])),
        (_exponential(positive=(4,), negative=(2,)), ([-2.0, -1.0, 1.0, 2.0], [0, 2, 1, 4, 0])),
        (_exponential(scale=1, positive=(4,), positive_offset=2), ([2.0, 2.0**1.5], [1, 4, 0])),
        (_exponential(scale=-10, positive=(4,), positive_offset=9), ([math.inf, math.inf], [1, 4, 0])),
    ],
)
def test_exponential(value: ExponentialHistogram, expected: tuple[list[float], list[int]]) -> None:
    """Exponential buckets get their bounds: one more count than bounds, none of them lost."""
    bounds, counts = buckets(value)
    assert (bounds, counts) == expected
    assert len(counts) == len(bounds) + 1
