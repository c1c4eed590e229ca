"""Small pictures of many runs, and the names that a filter can use."""

from tests.hub.questions.conftest import Get


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
    """Neither may be left out."""
    get("/api/sparks", expect=400, metric=["loss"])
    get("/api/sparks", expect=400, run=["big"])


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
