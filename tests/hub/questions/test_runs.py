"""The table of runs, one run, its keys and its lines, asked over HTTP."""

import math
from typing import Any

import pytest

from tests.hub.questions.conftest import Get
from tests.hub.questions.world import BAD, SPIKE, START, STEPS


def ids(answer: dict[str, Any]) -> list[str]:
    """The ids of the runs in an answer."""
    return [run["id"] for run in answer["runs"]]


def test_table(get: Get) -> None:
    """The newest run comes first, with its state, its configuration and the values asked for."""
    found = get("/api/runs", metric="loss", sort="-started")
    assert (found["matched"], found["total"], found["next"]) == (14, 14, None)
    assert ids(found)[:2] == ["small-11", "small-10"]
    big = next(run for run in found["runs"] if run["id"] == "big")
    assert (big["status"], big["step"], big["ranks"], big["name"]) == ("finished", STEPS - 1, 2, "baseline")
    assert big["config"]["optim"] == {"name": "adam"}
    assert big["counts"]["alerts"] == 1
    assert next(run for run in found["runs"] if run["id"] == "small-3")["values"]["loss"]["value"] == "Infinity"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("status = failed and project = tiny and metrics.loss > 0.8", {"small-9", "small-11", "small-3"}),
        ("config.lr = 3e-4", {"big"}),
        ("config.optim.name = adam or config.layers in (1, 2)", {"big", "small-1", "small-2"}),
        ('name ~ "REST" and attempts = 2', {"again"}),
        ("metrics.trainer/loss = inf", {"small-3"}),
        ("tag.team = red and not project = tiny", {"big", "again"}),
        ('started < "2026-10-01" and step > 100', {"big", "again"}),
        ("alerts > 0 and hosts = a", {"big"}),
        ("config.bs.x = 8", {"big"}),
    ],
)
def test_filter(get: Get, wanted: str, expected: set[str]) -> None:
    """An expression picks runs by any of their fields."""
    assert set(ids(get("/api/runs", filter=wanted))) == expected


def test_pages_hold_every_run_once(get: Get) -> None:
    """Following `next` leads through all runs in order; runs without the sorted value come last."""
    seen: list[str] = []
    cursor = None
    while True:
        given = {"cursor": cursor} if cursor else {}
        found = get("/api/runs", limit=3, sort="config.layers", **given)
        seen += ids(found)
        cursor = found["next"]
        if cursor is None:
            break
    assert seen[:12] == [f"small-{number}" for number in range(12)]
    assert sorted(seen[12:]) == ["again", "big"]


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"filter": "foo = 1"}, "no field 'foo'"),
        ({"filter": "name ="}, "at character 7"),
        ({"sort": "nothing"}, "no field"),
        ({"cursor": "%%%"}, "cursor"),
        ({"limit": "0"}, "from 1 to 10000"),
        ({"limit": ["1", "2"]}, "given once"),
        ({"limits": "1"}, "there is no parameter"),
        ({"filter": "started > yesterday"}, "no date"),
    ],
)
def test_says_what_is_wrong(get: Get, params: dict[str, Any], word: str) -> None:
    """A wrong parameter is refused with a sentence that names it."""
    error = get("/api/runs", expect=400, **params)["error"]
    assert error["code"] == "bad_request"
    assert word in error["message"]


def test_one_run(get: Get) -> None:
    """A run tells its processes and how they ended."""
    found = get("/api/runs/again")
    assert [(writer["id"], writer["attempt"]) for writer in found["writers"]] == [("a1", 1), ("a2", 2)]
    assert found["endings"] == [{"rank": 0, "attempt": 1, "time": START / 1e9 + 1101, "status": "failed"}]
    assert found["environment"]["launcher"] == "test"
    assert found["status"] in ("running", "stalled", "crashed")
    assert get("/api/runs/nobody", expect=404)["error"]["code"] == "not_found"


def test_keys(get: Get) -> None:
    """Keys come with their extent and flags for values that are not finite."""
    keys = {key["key"]: key for key in get("/api/runs/big/keys")["keys"]}
    assert sorted(keys) == ["system/gpu_util", "trainer/loss", "trainer/lr"]
    loss = keys["trainer/loss"]
    assert (loss["points"], loss["max"], loss["ranks"], loss["category"]) == (2 * STEPS, 50.0, [0, 1], "trainer")
    assert loss["flags"] & 1


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
    found = get("/api/runs/big/series", key=["trainer/loss", "trainer/lr", "none"], by_rank="true")["series"]
    assert [(line["key"], line["rank"]) for line in found] == [
        ("trainer/loss", 0),
        ("trainer/loss", 1),
        ("trainer/lr", 0),
        ("trainer/lr", 1),
        ("none", None),
    ]
    assert found[-1]["total"] == 0


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
    """Without a key there is nothing to draw."""
    assert "key is missing" in get("/api/runs/big/series", expect=400)["error"]["message"]


def test_relative_origin(get: Get) -> None:
    """The time that relative x counts from is given."""
    (line,) = get("/api/runs/big/series", key="trainer/loss", x="relative")["series"]
    assert math.isclose(line["origin"], START / 1e9)
