"""MLflow's REST API at a hub: what is logged can be read back at once, exactly, and is an ordinary run."""

import base64
import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.journal.run_edits import Edits
from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until

T = 1_700_000_000_000


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> RestCalls:
    """The hub, by its MLflow API."""
    return RestCalls(hub.port)


def point(key: str, value: Any, step: int = 0, timestamp: int = T) -> dict[str, Any]:
    """A value as clients send it."""
    return {"key": key, "value": value, "timestamp": timestamp, "step": step}


def data_of(server: RestCalls, run: str) -> Any:
    """The data of a run: key and value of metrics, params and tags."""
    data = server.get("runs/get", run_id=run).body["run"]["data"]
    return {kind: {item["key"]: item["value"] for item in data.get(kind, [])} for kind in ("metrics", "params", "tags")}


def history(server: RestCalls, run: str, key: str) -> list[tuple[int, Any]]:
    """Steps and values of a metric."""
    found = server.get("metrics/get-history", run_id=run, metric_key=key).body.get("metrics", [])
    return [(each["step"], each["value"]) for each in found]


def run_on_the_page(hub: RunningHub, run: str, is_there: Callable[[Any], bool]) -> Any:
    """The run as the page shows it, once it is as expected."""
    found: list[Any] = []

    def is_shown() -> bool:
        answer = hub.request("GET", f"/api/runs/{run}")
        found[:] = [answer.json()] if answer.status == 200 else []
        return bool(found) and is_there(found[0])

    wait_until(is_shown)
    return found[0]


def test_what_was_logged_is_read_back_at_once(server: RestCalls) -> None:
    """Params, tags, latest values and the whole history are there when the call that logged them has returned."""
    run = server.create_run(run_name="first", tags=[{"key": "team", "value": "a"}])
    body = {
        "run_id": run,
        "metrics": [point("train/loss", 1 / (step + 1), step) for step in range(20)],
        "params": [{"key": "lr", "value": "0.1"}],
        "tags": [{"key": "stage", "value": "warm"}],
    }
    assert server.post("runs/log-batch", body).body == {}
    found = data_of(server, run)
    assert found["metrics"] == {"train/loss": 0.05}
    assert found["params"] == {"lr": "0.1"}
    assert found["tags"] == {"mlflow.runName": "first", "stage": "warm", "team": "a"}
    assert history(server, run, "train/loss") == [(step, 1 / (step + 1)) for step in range(20)]


def test_a_run_is_an_ordinary_run(hub: RunningHub, server: RestCalls) -> None:
    """The experiment is the project, params are the configuration with numbers as numbers, tags are tags."""
    experiment = server.post("experiments/create", {"name": "gpt"}).body["experiment_id"]
    tags = [{"key": "team", "value": "x"}, {"key": "mlflow.note.content", "value": "why"}]
    run = server.create_run(experiment, run_name="baseline", tags=tags)
    server.post("runs/log-parameter", {"run_id": run, "key": "lr", "value": "0.001"})
    server.post("runs/log-parameter", {"run_id": run, "key": "optimizer", "value": "adam"})
    server.post("runs/set-tag", {"run_id": run, "key": "later", "value": "y"})
    server.post("runs/log-metric", {"run_id": run, **point("loss", 0.5, 7, time.time_ns() // 1_000_000)})
    server.post("runs/update", {"run_id": run, "status": "FINISHED", "end_time": time.time_ns() // 1_000_000})
    shown = run_on_the_page(hub, run, lambda found: found["status"] == "finished" and found["step"] == 7)
    assert (shown["project"], shown["name"], shown["notes"]) == ("gpt", "baseline", "why")
    assert shown["config"] == {"lr": 0.001, "optimizer": "adam"}
    assert shown["tags"] == {"team": "x", "later": "y"}


def test_a_run_that_goes_on_after_its_end_is_a_new_attempt(hub: RunningHub, server: RestCalls) -> None:
    """The history contains both attempts."""
    run = server.create_run()
    server.post("runs/log-metric", {"run_id": run, **point("loss", 2.0, 1)})
    for status in ("FAILED", "RUNNING"):
        server.post("runs/update", {"run_id": run, "status": status})
    server.post("runs/log-metric", {"run_id": run, **point("loss", 1.0, 2, T + 1)})
    assert history(server, run, "loss") == [(1, 2.0), (2, 1.0)]
    assert run_on_the_page(hub, run, lambda found: found["attempts"] == 2)


def test_no_value_is_bent(server: RestCalls) -> None:
    """NaN, infinities, negative zero, the smallest and largest numbers and any step come back as they were sent."""
    run = server.create_run()
    values = ["NaN", "Infinity", "-Infinity", 5e-324, 1.7976931348623157e308, 0.1 + 0.2]
    steps = [-(2**53), -1, 0, 3, 2**53, 2**62]
    metrics = [point("v", value, step, T + at) for at, (value, step) in enumerate(zip(values, steps, strict=True))]
    assert server.post("runs/log-batch", {"run_id": run, "metrics": metrics}).status == 200
    assert history(server, run, "v") == list(zip(steps, values, strict=True))


def test_null_and_bare_nan_are_kept_and_poison_nothing(hub: RunningHub, server: RestCalls) -> None:
    """A batch of a careless client is taken whole: its null and its bare NaN are NaN, and are counted."""
    run = server.create_run()
    metrics = [point("loss", None, 1), point("loss", math.nan, 2), point("loss", math.inf, 3), point("loss", 0.5, 4)]
    body = json.dumps({"run_id": run, "metrics": metrics}).encode()
    assert b"NaN" in body
    assert server.send("POST", "runs/log-batch", body).status == 200
    assert history(server, run, "loss") == [(1, "NaN"), (2, "NaN"), (3, "Infinity"), (4, 0.5)]
    reasons = hub.health()["receivers"]["mlflow"]["dropped"]
    assert reasons["a metric's value was null or a bare NaN: kept as NaN"] >= 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": [point("bad?", 1.0)]},
        {"params": [{"key": "lr", "value": "0.2"}]},
        {"params": [{"key": "a", "value": "1"}, {"key": "a", "value": "1"}]},
        {"tags": [{"key": "../up", "value": "1"}]},
    ],
)
def test_a_batch_is_taken_whole_or_not_at_all(server: RestCalls, wrong: dict[str, Any]) -> None:
    """One thing that is wrong with it refuses all of it."""
    run = server.create_run()
    server.post("runs/log-parameter", {"run_id": run, "key": "lr", "value": "0.1"})
    before = data_of(server, run)
    good = {
        "metrics": [point("loss", 1.0)],
        "params": [{"key": "new", "value": "1"}],
        "tags": [{"key": "new", "value": "1"}],
    }
    body = {"run_id": run, **{kind: [*good[kind], *wrong.get(kind, [])] for kind in good}}
    refused = server.post("runs/log-batch", body)
    assert (refused.status, refused.body["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert data_of(server, run) == before
    assert history(server, run, "loss") == []


def test_the_same_value_twice_is_one(server: RestCalls) -> None:
    """As in MLflow: the same key, time, step and value is no second value, in whichever request it comes."""
    run = server.create_run()
    for metrics in ([point("loss", 1.0, 1)], [point("loss", 1.0, 1), point("loss", 2.0, 1)]):
        assert server.post("runs/log-batch", {"run_id": run, "metrics": metrics}).status == 200
    assert history(server, run, "loss") == [(1, 1.0), (1, 2.0)]


def test_numbers_beyond_an_int64_are_no_trouble_of_the_hub(server: RestCalls) -> None:
    """Numbers beyond an int64 in a filter, page token or id match nothing or are refused."""
    run, far = server.create_run(), "9" * 40
    token = base64.b64encode(b'{"offset": 9000000000000000000}').decode()
    asked = [
        server.post("runs/search", {"experiment_ids": ["0"], "filter": f"start_time > {far}"}),
        server.post("runs/search", {"experiment_ids": [far]}),
        server.get("metrics/get-history", run_id=run, metric_key="loss", page_token=token),
        server.get("experiments/get", experiment_id=far),
        server.post("runs/create", {"experiment_id": far, "start_time": far}),
    ]
    assert [answer.status for answer in asked] == [200, 200, 200, 404, 400]


def test_many_orders_and_clauses(server: RestCalls) -> None:
    """Sixty orders are sorted by at once, where thirty kept a thread busy for minutes; more are refused."""
    server.create_run()
    orders, clauses = [f"metrics.m{at}" for at in range(61)], [f"start_time > {at}" for at in range(401)]
    assert server.post("runs/search", {"experiment_ids": ["0"], "order_by": orders[:60]}).status == 200
    assert server.post("runs/search", {"experiment_ids": ["0"], "filter": " AND ".join(clauses[:400])}).status == 200
    for many in ({"order_by": orders}, {"filter": " AND ".join(clauses)}):
        answer = server.post("runs/search", {"experiment_ids": ["0"], **many})
        assert (answer.status, answer.body["error_code"]) == (400, "BAD_REQUEST")


def test_a_sample_of_an_interval_is_even(server: RestCalls) -> None:
    """A sample has the first and last value, and evenly spaced ones between."""
    run = server.create_run()
    server.post(
        "runs/log-batch", {"run_id": run, "metrics": [point("v", step, step, T + step) for step in range(1000)]}
    )
    found = server.get("metrics/get-history-bulk-interval", run_ids=run, metric_key="v", max_results=5).body["metrics"]
    assert [each["step"] for each in found] == [0, 200, 400, 600, 999]


def test_secrets_are_masked_before_the_disk(hub: RunningHub, server: RestCalls) -> None:
    """Neither the answers nor any file of the hub has a password that was logged."""
    run = server.create_run(tags=[{"key": "db_password", "value": "hunter2hunter2"}])
    server.post("runs/log-parameter", {"run_id": run, "key": "api_key", "value": "swordfish-swordfish"})
    server.post("runs/set-tag", {"run_id": run, "key": "auth_token", "value": "open-sesame-sesame"})
    assert data_of(server, run)["params"] == {"api_key": "[redacted]"}
    files = list(_contents(hub.home / "hub"))
    assert not [word for word in (b"hunter2", b"swordfish", b"open-sesame") if any(word in data for data in files)]


def _contents(folder: Path) -> Iterator[bytes]:
    """The contents of the files that a hub has, while it moves and deletes some."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield Path(place, name).read_bytes()


def test_deleting_archives_and_restoring_brings_back(hub: RunningHub, server: RestCalls) -> None:
    """A deleted run takes nothing, is not found by a search, and is archived on the page until it is restored."""
    run = server.create_run(run_name="goes")
    server.post("runs/delete", {"run_id": run})
    refused = server.post("runs/log-metric", {"run_id": run, **point("loss", 1.0)})
    assert refused.body["message"] == f"The run {run} must be in the 'active' state. Current state is deleted."
    wanted = {"experiment_ids": ["0"], "filter": "run_name = 'goes'"}
    assert server.post("runs/search", wanted).body == {}
    assert len(server.post("runs/search", {**wanted, "run_view_type": "DELETED_ONLY"}).body["runs"]) == 1
    assert run_on_the_page(hub, run, lambda found: found["archived"])
    server.post("runs/restore", {"run_id": run})
    assert run_on_the_page(hub, run, lambda found: not found["archived"])


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub that a test stops and starts again."""
    pytest.importorskip("tests.chdb")
    made = RunningHub(tmp_path / "home").start()
    yield made
    made.kill()


def test_everything_survives_a_kill(restarted: RunningHub) -> None:
    """Experiments, runs, params, tags, latest values and histories are there after `kill -9`."""
    server = RestCalls(restarted.port)
    experiment = server.post("experiments/create", {"name": "kept"}).body["experiment_id"]
    run = server.create_run(experiment)
    body = {"run_id": run, "metrics": [point("loss", 0.5, 3)], "params": [{"key": "lr", "value": "1"}]}
    assert server.post("runs/log-batch", body).status == 200
    before = server.get("runs/get", run_id=run).body
    restarted.kill()
    restarted.start()
    server = RestCalls(restarted.port)
    assert server.get("runs/get", run_id=run).body == before
    assert history(server, run, "loss") == [(3, 0.5)]
    assert (
        server.get("experiments/get-by-name", experiment_name="kept").body["experiment"]["experiment_id"] == experiment
    )


def test_a_deleted_run_leaves_no_files(restarted: RunningHub) -> None:
    """Deleting a run deletes its artifacts, models and rows, and counts them; also where no hub was running."""
    server, folder = RestCalls(restarted.port), restarted.home / "hub" / "files" / "mlflow" / "artifacts"
    runs = [server.create_run() for _ in range(3)]
    for run in runs:
        server.send("PUT", f"/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/a/b.txt", b"text")
        server.post("runs/update", {"run_id": run, "status": "FINISHED", "end_time": T + 1})
    made = server.post("logged-models", {"experiment_id": "0", "name": "m", "source_run_id": runs[0]})
    model = made.body["model"]["info"]["model_id"]
    server.send("PUT", f"/api/2.0/mlflow-artifacts/artifacts/0/models/{model}/artifacts/weights", b"weights")
    assert run_on_the_page(restarted, runs[0], lambda found: found["status"] == "finished")
    answer: dict[str, Any] = {}

    def is_deleted() -> bool:  # refused while the run counts as going on
        answer.update(restarted.request("DELETE", f"/api/runs/{runs[0]}").json())
        return "freed" in answer

    wait_until(is_deleted)
    assert answer["freed"]["files"] == len(b"text") + len(b"weights")
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {"b.txt"}
    assert server.get("runs/get", run_id=runs[0]).status == 404
    assert server.get(f"logged-models/{model}").status == 404
    restarted.kill()
    Edits(restarted.home).append(runs[1], "somebody", deleted=True)
    restarted.start()
    server = RestCalls(restarted.port)
    assert {path.parts[-4] for path in folder.rglob("b.txt")} == {runs[2]}
    assert [server.get("runs/get", run_id=run).status for run in runs] == [404, 404, 200]
