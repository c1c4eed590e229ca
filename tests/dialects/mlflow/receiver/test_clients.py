"""Scripts that know MLflow only, run with the real client against a hub."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.forked import ForkedProgram
from tests.hub.conftest import RunningHub

SCRIPTS = Path(__file__).parent / "scripts"
IMPORTED = "mlflow,torch,lightning.pytorch"
"""What most scripts import, which takes ten seconds: the process that they are forked from has done so once."""

IN_PARTS = {
    "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "true",
    "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "true",
    "MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "1000",
}
"""Clients are told to send files in parts, which a hub does not take: they send them whole when it says so."""


def play(hub: RunningHub, script: str, folder: Path, *needed: str) -> Any:
    """Run a script with the one variable set, and return what it prints last."""
    missing = [name for name in ("mlflow", *needed) if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "STEPSCOPE_", "OTEL_"))}
    env = {**kept, "MLFLOW_TRACKING_URI": hub.url, "MLFLOW_DISABLE_TELEMETRY": "true", **IN_PARTS}
    program = Path(shutil.copy(SCRIPTS / script, folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        code = ForkedProgram(program, [], env, IMPORTED).wait(500)
    assert code == 0, (folder / "err").read_text()[-3000:]
    return json.loads((folder / "out").read_text().strip().splitlines()[-1])


def test_the_fluent_api(hub: RunningHub, tmp_path: Path) -> None:
    """Nested and resumed runs, asynchronous logging, artifacts and searches work; every value is as it was logged."""
    found = play(hub, "fluent.py", tmp_path)
    run = found.pop("run")
    assert found == {
        "status": "FINISHED",
        "params": {"lr": "0.1", "layers": "[1, 2]"},
        "metrics": {"asynchronous": "1.0", "loss": repr(1 / 3), "nan": "nan", "inf": "-inf"},
        "tags": {"team": "a", "a": "1", "b": "two"},
        "history": [[0, 1.0], [1, 0.5], [2, 1 / 3], [3, 0.01]],
        "children": ["child"],
        "artifacts": ["d.json", "notes", "weights"],
        "text": "hello",
        "downloaded": 1,
    }
    shown = hub.request("GET", f"/api/runs/{run}").json()
    assert (shown["project"], shown["name"], shown["notes"], shown["attempts"]) == ("fluent", "parent", "why", 2)
    ended = hub.request("GET", f"/api/logs?run={run}&name=mlflow.trace").json()["logs"]
    assert [each["attrs"]["state"] for each in ended] == ["OK"]
    spans = hub.request("GET", f"/api/traces/{ended[0]['trace_id']}").json()["spans"]
    assert [each["name"] for each in spans] == ["traced"]


def test_autologging_of_scikit_learn(hub: RunningHub, tmp_path: Path) -> None:
    """Params, metrics, datasets and a model, which is loaded again and predicts."""
    found = play(hub, "sklearn_autolog.py", tmp_path, "sklearn")
    assert "fit_intercept" in found["params"]
    assert "training_mean_squared_error" in found["metrics"]
    assert (found["models"], found["outputs"], found["datasets"], found["predicted"]) == (1, 1, 2, 3.0)


def test_the_model_registry(hub: RunningHub, tmp_path: Path) -> None:
    """Models are registered as they are logged and by their URI, and loaded by version, alias and stage."""
    found = play(hub, "model_registry.py", tmp_path, "sklearn")
    listed = {int(each["version"]) for each in json.loads(found.pop("of the model"))}  # the client adds them as text
    assert listed == {1, 2, 3}
    assert found == {
        "predicted": [3.0, 3.0, 3.0, 3.0],
        "versions": [["1", "Staging"], ["2", "None"], ["3", "None"]],
        "tags": {"task": "regression"},
        "aliases": {"champion": "2"},
        "described": "the first",
        "run": True,
        "prompt": "Hello you",
        "models": ["line"],
    }


def test_lightning_by_its_logger_and_by_autologging(hub: RunningHub, tmp_path: Path) -> None:
    """Both log their epochs."""
    found = play(hub, "lightning_logger.py", tmp_path, "torch", "lightning")
    logged = ["FINISHED", {"width": "1"}, ["epoch", "train_loss"]]
    assert found == {"logged": logged, "epochs": 2, "auto": True}


def test_the_callback_of_transformers(hub: RunningHub, tmp_path: Path) -> None:
    """The callback's 100+ params arrive in batches, its losses one by one."""
    found = play(hub, "transformers_trainer.py", tmp_path, "torch", "transformers")
    assert found == {"params": True, "losses": 4, "status": "FINISHED"}


def test_an_experiment_of_a_client_is_found_by_others(hub: RunningHub) -> None:
    """The experiment that every program uses which names none is there from the start."""
    assert RestCalls(hub.port).get("experiments/get", experiment_id="0").body["experiment"]["name"] == "Default"
