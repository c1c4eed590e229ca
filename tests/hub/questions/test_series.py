"""Metrics of a run as chart lines."""

import math
from itertools import pairwise
from typing import Any

import pytest

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import BAD, MS, SECOND, SPIKE, START, STEPS


def test_over_time_ranks_are_aligned_by_their_steps(hub: Hub, get: Get) -> None:
    """Ranks that log a step at slightly different times make one mark of it, also without steps."""
    ranks = 4
    for rank in range(ranks):
        late = rank * 20 * MS
        points: list[Record] = [
            Metric(START + n * SECOND // 10 + late, n, None, None, {"loss": 10.0 * rank + 1 / (n + 1)})
            for n in range(400)
        ]
        points += [
            Metric(START + n * SECOND + 5 * late, None, None, "system", {"load": 10.0 * rank}) for n in range(40)
        ]
        writer = Writer(id=f"aligned{rank}", run="aligned", project="p", rank=rank, world_size=ranks, wall_ns=START)
        hub.store.write(Batch(writer, 1, points))

    def asked(key: str, **more: object) -> dict[str, Any]:
        (line,) = get("/api/runs/aligned/series", key=key, align="true", **more)["series"]
        return dict(line)

    line = asked("loss", x="time", points=1000)
    assert (line["aligned"], line["total"], line["shown"]) == (True, 1600, 400)
    assert line["columns"]["mean"] == pytest.approx([15 + 1 / (n + 1) for n in range(400)])
    assert (line["columns"]["min"][7], line["columns"]["max"][7], line["columns"]["count"][7]) == (0.125, 30.125, 4)
    assert line["columns"]["last"][-1] == pytest.approx(15 + 1 / 400)
    few = asked("loss", x="relative", points=50)["columns"]["mean"]
    assert max(abs(after - before) for before, after in pairwise(few[1:])) < 0.2
    load = asked("system/load", x="relative", points=1000)["columns"]["mean"]
    assert len(load) >= 18
    assert load == pytest.approx([15.0] * len(load))
    assert not asked("loss", x="step", points=1000)["aligned"]
    assert not asked("loss", x="time", points=1000, rank=2)["aligned"]


def test_raw_points_when_they_fit(get: Get) -> None:
    """All points come back, NaN as a word."""
    (line,) = get("/api/runs/big/series", key="trainer/loss", rank=1)["series"]
    assert (line["shape"], line["total"], line["shown"]) == ("raw", STEPS, STEPS)
    assert line["columns"]["value"][BAD] == "NaN"
    assert line["columns"]["x"] == list(range(STEPS))


def test_buckets_keep_the_spike(get: Get) -> None:
    """However few the marks, the extremes and the flags are there, and the counts add up."""
    (line,) = get("/api/runs/big/series", key="trainer/loss", points=6)["series"]
    columns = line["columns"]
    assert line["shape"] == "buckets"
    assert line["shown"] == len(columns["x"]) <= 6
    assert max(columns["max"]) == 50.0
    assert sum(columns["count"]) == line["total"] == 2 * STEPS
    flagged = [at for at, flags in enumerate(columns["flags"]) if flags & 1]
    (at,) = flagged
    assert columns["non_finite"] == [int(place == at) for place in range(line["shown"])]
    assert columns["x"][at] <= BAD <= columns["x_last"][at]
    assert all(isinstance(value, float) for value in columns["mean"])


def test_zoom_and_axes(get: Get) -> None:
    """A range narrows what is read; x can be the time since the start."""
    params = {"key": "trainer/loss", "rank": 0}
    (line,) = get("/api/runs/big/series", **params, **{"from": SPIKE, "to": SPIKE + 1})["series"]
    assert line["columns"]["value"] == [50.0, pytest.approx(2.0 - (SPIKE + 1) / 100)]
    (line,) = get("/api/runs/big/series", **params, x="relative", **{"from": 10, "to": 12})["series"]
    assert line["columns"]["x"] == [pytest.approx(10.9), pytest.approx(11.9)]
    assert line["columns"]["step"] == [10, 11]


def test_several_lines(get: Get) -> None:
    """Several keys, each with a line per rank."""
    found = get("/api/runs/big/series", key=["trainer/loss", "trainer/lr"], by_rank="true")["series"]
    assert [(line["key"], line["rank"]) for line in found] == [
        ("trainer/loss", 0),
        ("trainer/loss", 1),
        ("trainer/lr", 0),
        ("trainer/lr", 1),
    ]


def test_what_is_known_of_series_is_read_once_for_all_lines(
    hub: Hub, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of the run, the series and their totals take three queries, and each line one more."""
    asked: list[str] = []
    query = hub.store.engine.query

    def noted(sql: str) -> Any:
        asked.append(sql)
        return query(sql)

    monkeypatch.setattr(hub.store.engine, "query", noted)
    assert len(get("/api/runs/big/series", key=["trainer/loss", "trainer/lr"], by_rank="true")["series"]) == 4
    assert len(asked) == 3 + 4
    asked.clear()
    assert get("/api/runs/again/series", key="trainer/loss", points=60)["series"][0]["superseded"] == 50
    assert len(asked) == 3 + 1


def test_superseded_points_do_not_make_a_line_coarser(get: Get) -> None:
    """Every point is given where those that are not superseded fit, though all of them would not."""
    (line,) = get("/api/runs/again/series", key="trainer/loss", points=150)["series"]
    assert (line["shape"], line["total"], line["shown"], line["superseded"]) == ("raw", 150, 150, 50)
    (line,) = get("/api/runs/again/series", key="trainer/loss", points=149)["series"]
    assert (line["shape"], line["total"], line["superseded"]) == ("buckets", 150, 50)


def test_attempts(get: Get) -> None:
    """The newest attempt is the line; what it superseded is counted and there on request."""
    (line,) = get("/api/runs/again/series", key="trainer/loss")["series"]
    assert (line["total"], line["superseded"]) == (150, 50)
    assert line["columns"]["value"][49:51] == [1.0, 2.0]
    (line,) = get("/api/runs/again/series", key="trainer/loss", attempts="all")["series"]
    assert line["total"] == 200
    (line,) = get("/api/runs/again/series", key="trainer/loss", attempts="1")["series"]
    assert set(line["columns"]["attempt"]) == {1}
    get("/api/runs/again/series", expect=400, key="trainer/loss", attempts="first")


def test_a_line_needs_a_key(get: Get) -> None:
    """The parameter `key` is required."""
    assert "key is missing" in get("/api/runs/big/series", expect=400)["error"]["message"]


def test_relative_origin(get: Get) -> None:
    """The time that relative x counts from is given."""
    (line,) = get("/api/runs/big/series", key="trainer/loss", x="relative")["series"]
    assert math.isclose(line["origin"], START / 1e9)


def test_some_ranks_have_a_line_each(get: Get) -> None:
    """Several ranks are named where each gets a line; together they are either one or all."""
    found = get("/api/runs/big/series", key="trainer/loss", rank=[1, 0, 7], by_rank="true")["series"]
    assert [(line["rank"], line["total"]) for line in found] == [(0, STEPS), (1, STEPS)]
    assert "by_rank" in get("/api/runs/big/series", expect=400, key="trainer/loss", rank=[0, 1])["error"]["message"]
