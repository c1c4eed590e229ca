"""The table of runs, one run, its keys and its lines, asked over HTTP."""

from typing import Any

import pytest

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import START, STEPS


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
        ("duration > 0.25h", {"again"}),
        ('duration > 1.5m and duration < "1d" and step = "119"', {"big"}),
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
        ({"filter": "loss > 1"}, "did you mean metrics.loss or config.loss?"),
        ({"filter": "metric.loss > 1"}, "did you mean metrics.loss or config.loss?"),
        ({"filter": "statsu = 'running'"}, "did you mean status?"),
        ({"filter": "name ="}, "at character 7"),
        ({"sort": "nothing"}, "no field"),
        ({"cursor": "%%%"}, "cursor"),
        ({"limit": "0"}, "from 1 to 10000"),
        ({"limit": ["1", "2"]}, "given once"),
        ({"limits": "1"}, "there is no parameter"),
        ({"filter": "started > yesterday"}, "not a date"),
        ({"filter": "duration > soon"}, "'soon' is not a duration: write 90, 90s, 1.5h or 2d"),
        ({"filter": "step in (3, five)"}, "'five' is not a number, and step is one"),
        ({"filter": "metrics.loss < 1s"}, "'1s' is not a number, and metrics.loss is one"),
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


def test_fields_name_what_runs_have(get: Get) -> None:
    """Metrics and settings come with how many runs have them, the most common first."""
    found = get("/api/fields")
    assert "status" in found["plain"]
    assert found["projects"] == ["gpt", "tiny"]
    metrics = {each["name"]: each["runs"] for each in found["metrics"]}
    assert metrics["trainer/loss"] == 14
    assert metrics["system/gpu_util"] == 1
    config = [each["name"] for each in found["config"]]
    assert config[0] == "lr"
    assert "optim.name" in config


def test_runs_have_their_tags(get: Get) -> None:
    """The table shows them."""
    assert get("/api/runs/big")["tags"] == {"team": "red"}


def test_the_summary_of_a_run(get: Get) -> None:
    """Spans by name with their durations, and how many logs, events and alerts of each kind there are."""
    found = get("/api/runs/big/summary")
    assert found["spans"]["train.forward"]["count"] == 2 * STEPS
    assert found["spans"]["train.backward"]["errors"] == 1
    assert found["spans"]["train.step"]["max_ms"] == 900.0
    assert (found["logs"], found["alerts"]) == ({"INFO": 2 * STEPS}, {"nan": 1})
    assert get("/api/runs/big/keys")["keys"][1]["non_finite"] == 1


def test_shares_are_not_added_up_as_counters(get: Get, hub: Hub) -> None:
    """Stepscope's own counters are added up over ranks, its shares of the time are not among them."""
    for rank in range(2):
        writer = Writer(id=f"own{rank}", run="own", project="gpt", rank=rank, world_size=2, wall_ns=START)
        counts = {"written/metric": 3, "overhead/total": 0.7}
        hub.store.write(Batch(writer, 1, [Metric(START, None, None, "stepscope", counts)]))
    assert get("/api/runs/own/summary")["counters"] == {"written/metric": 6}
