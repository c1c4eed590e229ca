"""The metrics of runs: keys, short names, and sparklines."""

import json
from typing import Any

import pytest

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START, STEPS, began, ended

SPELLINGS = {
    "category": ("trainer", "loss", "trainer/loss"),
    "prefix": (None, "train/loss", "train/loss"),
    "bare": (None, "loss", "loss"),
    "lightning": (None, "train_loss", "train_loss"),
    "cleanrl": (None, "losses/policy_loss", "losses/policy_loss"),
    "evaluated": ("evaluator", "loss", "evaluator/loss"),
}


@pytest.fixture(scope="module", autouse=True)
def runs(hub: Hub) -> None:
    """A run for each spelling, all with the same values."""
    for number, (run, (category, key, _)) in enumerate(SPELLINGS.items()):
        start = START + (90_000 + number) * SECOND
        writer = Writer(id="w", run=run, project="spelled", name=f"the {run} one", wall_ns=start, host="d")
        points: list[Record] = [
            Metric(start + step * SECOND, step, None, category, {key: 1.0 + number + step / 10}) for step in range(5)
        ]
        points += [Metric(start, 0, None, None, {"val_loss": 99.0, "max_loss": 99.0})]
        hub.store.write(Batch(writer, 1, [began({"lr": 0.1}, start), *points, ended(start + 9 * SECOND)]))


def test_the_loss_of_every_run_is_shown(get: Get) -> None:
    """A short name resolves to a value and its key; training metrics take precedence over evaluation metrics."""
    found = get("/api/runs", filter="project = spelled", metric="loss")["runs"]
    assert {run["id"]: run["values"]["loss"]["key"] for run in found} == {
        run: key for run, (_, _, key) in SPELLINGS.items()
    }
    assert {run["id"]: run["values"]["loss"]["value"] for run in found} == {
        run: pytest.approx(1.4 + number) for number, run in enumerate(SPELLINGS)
    }


def test_the_small_lines_are_of_the_same_metrics(get: Get) -> None:
    """A sparkline belongs to the same metric as the value next to it."""
    found = get("/api/sparks", run=list(SPELLINGS), metric="loss")["sparks"]
    assert {each["run"]: each["key"] for each in found} == {run: key for run, (_, _, key) in SPELLINGS.items()}


@pytest.mark.parametrize("name", ["trainer/loss", "train/loss"])
def test_a_category_has_one_meaning(get: Get, name: str) -> None:
    """A metric is found by any alias of its category, or without one, also in filters and orders."""
    found = get("/api/runs", filter=f"project = spelled and metrics.{name} > 0", sort=f"metrics.{name}", metric=name)
    assert [run["id"] for run in found["runs"]] == ["category", "prefix", "bare"]
    assert [run["values"][name]["key"] for run in found["runs"]] == ["trainer/loss", "train/loss", "loss"]


def test_keys_have_one_name(get: Get) -> None:
    """Keys have a normalized name, by which runs are compared."""
    named = {run: {key["key"]: key["name"] for key in get(f"/api/runs/{run}/keys")["keys"]} for run in SPELLINGS}
    assert named["category"]["trainer/loss"] == named["prefix"]["train/loss"] == "trainer/loss"
    assert named["bare"]["loss"] == "loss"


def test_an_unknown_metric_is_reported(get: Get) -> None:
    """With the one that was meant, also for settings; nothing found is not the same as nothing there."""
    for text, meant in (("metrics.los < 5", "metrics.loss"), ("metrics.trainer/lss < 5", "metrics.trainer/loss")):
        message = get("/api/runs", expect=400, filter=text)["error"]["message"]
        assert f"no run has {text.split()[0]}; did you mean " in message
        assert meant in message
    assert "config.lr" in get("/api/runs", expect=400, filter="config.lrs = 1")["error"]["message"]
    assert "no run has metrics.zzzz" in get("/api/runs", expect=400, sort="metrics.zzzz")["error"]["message"]
    assert get("/api/runs", filter="metrics.loss > 1e9 and project = spelled")["runs"] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("cleanrl", {"cleanrl"}),
        ("THE bare", {"bare"}),
        ("spelled one", set(SPELLINGS)),
        ("spelled metrics.loss < 2", {"category"}),
        ("team=nobody-has-it or lightning", {"lightning"}),
    ],
)
def test_plain_words_find_runs(get: Get, text: str, ids: set[str]) -> None:
    """Words match name, id, project or tag."""
    text = text.replace("team=nobody-has-it", '"team=nobody-has-it"')
    assert {run["id"] for run in get("/api/runs", filter=text)["runs"]} == ids


def test_tags_are_searched(get: Get) -> None:
    """A tag with a value is found by both."""
    assert get("/api/runs", filter='"team=red" cleanrl')["matched"] == 1


def test_a_field_alone_is_no_search(get: Get) -> None:
    """A missing operator is named in the error."""
    assert "after 'status'" in get("/api/runs", expect=400, filter="status running")["error"]["message"]


def test_the_newest_start_comes_first(get: Get) -> None:
    """Runs are sorted by their start, not by their arrival at the hub."""
    started = [run["started"] for run in get("/api/runs", limit=1000)["runs"]]
    assert started == sorted(started, reverse=True)


def test_sparks_keep_the_extremes_of_all_ranks(get: Get) -> None:
    """A spike is in its bucket, values that are not finite are left out, and steps count from the first."""
    (spark,) = get("/api/sparks", run=["big"], metric=["loss"], points=10)["sparks"]
    assert spark["run"] == "big"
    assert spark["key"] == "trainer/loss"
    assert spark["x"] == list(range(0, 120, 12))
    assert spark["max"][5] == 50.0
    assert max(spark["max"][:5]) < 2.1


def test_sparks_take_the_first_metric_that_a_run_has(get: Get) -> None:
    """Runs without any of them, and runs that do not exist, have no picture."""
    found = get("/api/sparks", run=["small-1", "again", "none"], metric=["reward", "loss"])["sparks"]
    assert sorted(spark["run"] for spark in found) == ["again", "small-1"]
    assert get("/api/sparks", run=["big"], metric=["nothing"])["sparks"] == []


def test_sparks_need_a_run_and_a_metric(get: Get) -> None:
    """Both parameters are required."""
    get("/api/sparks", expect=400, metric=["loss"])
    get("/api/sparks", expect=400, run=["big"])


def test_keys(get: Get) -> None:
    """Keys come with their extent and flags for values that are not finite."""
    keys = {key["key"]: key for key in get("/api/runs/big/keys")["keys"]}
    assert sorted(keys) == ["system/gpu_util", "trainer/loss", "trainer/lr"]
    loss = keys["trainer/loss"]
    assert (loss["points"], loss["max"], loss["ranks"], loss["category"]) == (2 * STEPS, 50.0, [0, 1], "trainer")
    assert loss["flags"] & 1


@pytest.mark.parametrize("name", ["trainer/loss", "train/loss"])
@pytest.mark.parametrize("run", ["category", "prefix", "bare"])
def test_what_is_shown_can_be_asked_for(get: Get, ask: Any, run: str, name: str) -> None:
    """Lines, quantiles and exports take a metric in any spelling of its category, and answer with the recorded key."""
    key = SPELLINGS[run][2]
    (line,) = get(f"/api/runs/{run}/series", key=[name, key])["series"]
    assert (line["key"], line["total"]) == (key, 5)
    (line,) = get(f"/api/runs/{run}/quantiles", key=name)["series"]
    assert (line["name"], sum(line["columns"]["count"])) == (key, 5)
    for path in ("histograms", "exemplars"):
        assert get(f"/api/runs/{run}/{path}", key=name)["key"] == key
    rows = ask("GET", f"/api/runs/{run}/export", params={"key": name}).text.splitlines()
    assert [json.loads(row)["key"] for row in rows] == [key] * 5


@pytest.mark.parametrize("path", ["series", "quantiles", "histograms", "exemplars", "export"])
def test_an_unknown_metric_is_an_error(get: Get, path: str) -> None:
    """A metric that a run does not have is refused, with the nearest names it has."""
    error = get(f"/api/runs/prefix/{path}", expect=404, key="train/lss")["error"]
    assert error["message"] == "prefix has no metric 'train/lss'; did you mean train/loss?"
    few = get(f"/api/runs/prefix/{path}", expect=404, key="zzz")["error"]["message"]
    assert few == "prefix has no metric 'zzz'; it has max_loss, train/loss, val_loss"


def test_a_rank_without_a_metric_is_not_an_error(get: Get) -> None:
    """A metric that another rank has is known: the line is empty."""
    (line,) = get("/api/runs/big/series", key="train/loss", rank=7)["series"]
    assert (line["key"], line["total"]) == ("trainer/loss", 0)


def test_a_statement_without_rows_names_the_recorded_key(ask: Any) -> None:
    """SQL that looks for a metric under a name that no run recorded is answered with the names that were."""

    def hints(key: str) -> Any:
        sql = f"SELECT series FROM series WHERE key = '{key}'"
        return ask("POST", "/api/sql", json={"sql": sql}).json().get("hints", [])

    assert hints("train/los") == ["no metric is recorded as 'train/los'; did you mean train/loss or trainer/loss?"]
    assert hints("eval/loss") == ["no metric is recorded as 'eval/loss'; it is 'evaluator/loss'"]
    assert hints("train/loss") == []


def test_runs_are_sorted_by_the_extremes_of_a_metric(get: Get) -> None:
    """`min.KEY`, `max.KEY` and `best.KEY` filter and sort, and stand beside the last value; best by its name."""
    found = get("/api/runs", filter="project = gpt and max.loss > 2", sort="-max.trainer/loss", metric="loss")["runs"]
    assert [run["id"] for run in found] == ["big"]
    assert found[0]["values"]["loss"]["max"] == 50.0
    assert found[0]["values"]["loss"]["min"] == found[0]["values"]["loss"]["best"] == pytest.approx(2 - 119 / 100)
    assert get("/api/runs", filter="project = gpt", sort="best.loss")["runs"][0]["id"] == "big"
    assert "did you mean min.loss" in get("/api/runs", expect=400, sort="min.los")["error"]["message"]
    small = get("/api/runs", filter="min.loss < 0.25 and project = tiny", sort="min.loss", metric="loss")["runs"]
    assert [run["id"] for run in small] == ["small-0", "small-1", "small-2"]
    (endless,) = get("/api/runs", filter="id = small-3", metric="loss")["runs"]
    assert (endless["values"]["loss"]["value"], endless["values"]["loss"]["max"]) == ("Infinity", None)
