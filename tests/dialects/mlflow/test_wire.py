"""What becomes of records on their way to MLflow, judged by MLflow's own rules where it is installed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.dialects.mlflow.wire import (
    LONGEST_PARAM,
    MAX_METRICS,
    fresh_params,
    legal_key,
    metric_batches,
    pair_batches,
    params,
    points,
)
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Summary

WRITER = Writer(id="r0-a1-h-1-a", run="run", project="p")
KEYS = st.text(st.characters(codec="utf-8"), max_size=300) | st.text("./a _%", max_size=8)


@pytest.mark.parametrize("key", ["trainer/loss", "a b", "a.b-c_d:e", "é/ß", "x" * 250])
def test_legal_keys_stay(key: str) -> None:
    """What MLflow takes is not touched."""
    assert legal_key(key) == key


@pytest.fixture(scope="module")
def validation() -> Any:
    """MLflow's own rules; importing them takes seconds."""
    return pytest.importorskip("mlflow.utils.validation", reason="mlflow, whose rules these are, is not installed")


@given(key=KEYS)
def test_mlflow_takes_every_key(validation: Any, key: str) -> None:
    """Whatever a key was, MLflow's own check lets it pass, as a metric, a param and a tag."""
    found = legal_key(key)
    validation._validate_metric(found, 1.0, 1, 1)
    validation._validate_param(found, "x")
    validation._validate_tag(found, "x")


@given(st.lists(KEYS, unique=True))
def test_no_two_keys_become_one(keys: list[str]) -> None:
    """What had to be changed ends in a digest of what it was."""
    assert len({legal_key(key) for key in keys}) == len(keys)


def test_params_of_a_nested_config() -> None:
    """Flat, cut where too long, secrets masked, nothing on top of each other."""
    config = {"a/b": 1, "a": {"b": 2, "c": {}}, "token": "x", "long": "y" * 9000, "list": [1, float("nan")], "n": None}
    found = params(config)
    assert (found["a/b"], found["a/b_"], found["a/c"], found["token"]) == ("1", "2", "{}", "[redacted]")
    assert len(found["long"]) == LONGEST_PARAM
    assert (found["list"], found["n"]) == ('[1, "NaN"]', "None")


def test_a_changed_param_has_a_key_of_its_own() -> None:
    """MLflow never changes a param, and refuses the whole request that tries."""
    again = Writer(id="r0-a2-h-1-a", run="run", project="p", attempt=2)
    assert fresh_params({"lr": "1", "n": "2"}, {}, WRITER) == {"lr": "1", "n": "2"}
    known = {"lr": "1", "n": "2"}
    assert fresh_params({"lr": "3", "n": "2"}, known, again) == {"attempt_2/rank_0/lr": "3"}
    assert not fresh_params({"lr": "3"}, {**known, "attempt_2/rank_0/lr": "3"}, again)


def test_points_of_a_summary() -> None:
    """Quantiles are numbers too."""
    record = Metric(-5, None, None, None, {"s": Summary(2, 3.0, ((0.5, 1.0), (0.999, 2.0)))})
    found = list(points(WRITER, record))
    assert {each["key"]: each["value"] for each in found} == {"s/count": 2, "s/sum": 3, "s/p50": 1, "s/p99.9": 2}
    assert {each["timestamp"] for each in found} == {0}


@given(st.integers(0, 2500), st.integers(200, 100_000))
def test_metric_batches_keep_the_limits(count: int, most_bytes: int) -> None:
    """All points, in order, none twice; no body with too many, or too long unless it has one point."""
    found = [(at // 3, {"key": f"k{at}", "value": 1.0, "timestamp": at, "step": at}) for at in range(count)]
    bodies = [json.loads(body) for body, _ in metric_batches("run", found, most_bytes)]
    assert [point["step"] for body in bodies for point in body["metrics"]] == list(range(count))
    for (body, where), read in zip(metric_batches("run", found, most_bytes), bodies, strict=True):
        assert len(read["metrics"]) <= MAX_METRICS
        assert len(body) <= most_bytes or len(read["metrics"]) == 1
        assert set(where) == {point["step"] // 3 for point in read["metrics"]}


def test_pair_batches_keep_the_limits() -> None:
    """A hundred params in a body, fewer when they are long."""
    wanted = {f"k{number}": "é" * 6000 for number in range(250)}
    bodies = pair_batches("run", "params", wanted)
    read: list[list[dict[str, Any]]] = [json.loads(body)["params"] for body in bodies]
    assert {each["key"]: each["value"] for pairs in read for each in pairs} == wanted
    assert all(len(pairs) <= 100 and len(body) < 1_000_000 for pairs, body in zip(read, bodies, strict=True))
