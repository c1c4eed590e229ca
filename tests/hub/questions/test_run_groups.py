"""Groups of runs: the mean and the spread of what their runs have, in one request."""

import math

import pytest

from stepscope.hub.questions.runs.run_groups import MAX_GROUPS, statistics
from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START, began, ended

LOSSES = {0.1: (1.0, 2.0, 4.0), 0.01: (8.0, math.nan), 0.5: (3.0,)}


@pytest.fixture(scope="module", autouse=True)
def seeds(hub: Hub) -> None:
    """Store runs of three settings, one of them with a loss that is not finite at its end, and one without."""
    for lr, losses in LOSSES.items():
        for seed, loss in enumerate(losses):
            name = f"seed-{lr}-{seed}"
            writer = Writer(id=name, run=name, project="seeds", name=name, wall_ns=START)
            points = [(1, 9.0), (2, 0.5 * seed), (3, loss)]
            records: list[Record] = [began({"optim": {"lr": lr}, "seed": seed})]
            records += [Metric(START + step * SECOND, step, None, "trainer", {"loss": each}) for step, each in points]
            hub.store.write(Batch(writer, 1, [*records, ended(START + (10 + seed) * SECOND)]))
    bare = Writer(id="bare", run="bare", project="seeds", name="bare", wall_ns=START)
    hub.store.write(Batch(bare, 1, [began({}), ended(START + SECOND)]))


def test_each_group_has_the_mean_and_the_spread_of_its_runs(get: Get) -> None:
    """Over finite values, of all matching runs whatever the page; a single run has no spread."""
    asked = {"filter": "project = seeds", "group": "config.optim.lr", "metric": "loss", "column": "last2.loss"}
    found = get("/api/runs", sort="metrics.loss", limit=1, **asked)
    assert (len(found["runs"]), found["matched"], found["group_count"]) == (1, 7, 4)
    assert [(each["shared"], each["runs"]) for each in found["groups"]] == [(0.1, 3), (0.5, 1), (0.01, 2), (None, 1)]
    first, single, odd, none = (each["columns"] for each in found["groups"])
    assert first["metrics.loss"] == {
        "key": "trainer/loss",
        "unit": "",
        "mean": pytest.approx(7 / 3),
        "std": pytest.approx(1.5275252),
        "min": 1.0,
        "max": 4.0,
        "runs": 3,
    }
    assert (single["metrics.loss"]["mean"], single["metrics.loss"]["std"]) == (3.0, None)
    assert (odd["metrics.loss"]["mean"], odd["metrics.loss"]["runs"]) == (8.0, 1)
    assert (first["min.loss"]["mean"], first["max.loss"]["std"]) == (0.5, 0.0)
    assert first["last2.loss"]["mean"] == pytest.approx((0.5 + 1.25 + 2.5) / 3)
    assert first["duration"] == {
        "key": "duration",
        "unit": "",
        "mean": 11.0,
        "std": 1.0,
        "min": 10.0,
        "max": 12.0,
        "runs": 3,
    }
    assert {"metrics.loss", "step"}.isdisjoint(none)
    assert get("/api/runs", cursor=found["next"], **asked)["groups"] == []
    assert get("/api/runs", filter="project = seeds")["groups"] == []


@pytest.mark.parametrize(
    ("sort", "values"),
    [
        ("-metrics.loss", [0.01, 0.5, 0.1, None]),
        ("config.optim.lr", [0.01, 0.1, 0.5, None]),
        ("-last2.loss", [0.01, 0.5, 0.1, None]),
        ("-name", [0.5, 0.1, 0.01, None]),
        ("duration", [None, 0.5, 0.01, 0.1]),
    ],
)
def test_groups_sort_by_their_mean(get: Get, sort: str, values: list[object]) -> None:
    """Numbers sort by the mean, texts by what the group has in common; groups without the field come last."""
    found = get("/api/runs", filter="project = seeds", group="config.optim.lr", sort=sort)
    assert [each["shared"] for each in found["groups"]] == values


def test_any_field_makes_groups(get: Get) -> None:
    """A tag, a state, a plain field, a list; a field that no run has is refused with the nearest one."""
    for field, value in (("tag.team", "red"), ("status", "finished"), ("project", "seeds"), ("hosts", [""])):
        (group,) = get("/api/runs", filter="project = seeds", group=field)["groups"]
        assert (group["shared"], group["runs"]) == (value, 7)
    refused = get("/api/runs", expect=400, group="config.optim.lrr")
    assert "did you mean config.optim.lr" in refused["error"]["message"]


def test_statistics_stay_finite() -> None:
    """Equal values have no spread at all, and neither huge values nor huge integers break the answer."""
    assert statistics([0.1, 0.1, 0.1]) == {"mean": 0.1, "std": 0.0, "min": 0.1, "max": 0.1, "runs": 3}
    assert statistics(["text", None, True, math.inf, 10**400]) is None
    huge = statistics([1.7e308, -1.7e308, 1.7e308])
    assert huge is not None
    assert math.isfinite(huge["mean"])
    assert huge["std"] is None


def test_groups_are_bounded(get: Get, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than a table can show are counted, not sent."""
    assert MAX_GROUPS == 1000
    monkeypatch.setattr("stepscope.hub.questions.runs.run_groups.MAX_GROUPS", 3)
    found = get("/api/runs", group="id")
    assert len(found["groups"]) == 3
    assert found["group_count"] == found["matched"] > 3
