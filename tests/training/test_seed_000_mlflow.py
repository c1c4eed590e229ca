"""The document of the RL trainer's dual pipeline on the wire: metrics and traces to MLflow, and traces without it."""

import math
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Metric
from stepscope.testing import read_run
from stepscope.training import TrainingContext
from tests.dialects.mlflow.server_peer import API, Deed, MlflowPeer, MlflowServer
from tests.sinks.servers import Received, Reply, Server
from tests.training.conftest import of_user
from tests.training.test_seed_000 import keys
from tests.waiting import wait_until


def _has(peer: MlflowPeer, key: str) -> bool:
    return any(each["key"] == key for run in peer.runs() for each in run["data"].get("metrics", []))


def train(config: dict[str, Any]) -> TrainingContext:
    """One step of a trainer with this config, written out."""
    context = TrainingContext.initialize(config, algorithm="ppo")
    with context.step(1, "policy_version"), context.span("optimize"):
        context.emit("TRAINER", loss=0.5)
    assert context.run.flush(300)
    return context


def test_metrics_and_traces_reach_mlflow(mlflow_server: MlflowServer) -> None:
    """One endpoint takes both: metrics by category, traces linked to the run that holds them."""
    peer = MlflowPeer(mlflow_server)
    try:
        config = {"otlp_endpoint": peer.url, "mlflow_experiment": peer.experiment, "seed": 1}
        context = TrainingContext.initialize(config, algorithm="ppo")
        with context.step(3, "policy_version"), context.span("optimize"):
            context.emit("TRAINER", timesteps=4096, policy_version=3, actor_loss=0.25, kl=math.nan)
        context.evaluation([1.0], [5], duration_ms=2.0, policy_version=3)
        context.emit("MISC", timesteps=4096, steps_per_second=900)
        context.run.flush(10)
        wait_until(lambda: peer.experiment_id() and peer.traces() and _has(peer, "misc/steps_per_second"))
        (loss,) = peer.history("trainer/actor_loss")
        assert (loss["value"], loss["step"]) == (0.25, 3)
        assert [point["value"] for point in peer.history("evaluator/mean_return")] == [1.0]
        assert [point["step"] for point in peer.history("misc/steps_per_second")] == [4096]
        assert len(peer.history("trainer/kl")) == 1
        assert peer.run()["params"]["seed"] == "1"
        context.finish()
    finally:
        peer.close()


def test_metrics_fail_alone(mlflow_server: MlflowServer, place: Path) -> None:
    """A server that creates no run gets the traces all the same, and the metrics wait in the journal."""
    peer = MlflowPeer(mlflow_server)
    peer.decide = lambda passed: Deed(403, {}, b"{}") if passed.path.endswith("runs/create") else None
    try:
        config = {"logging": {"otlp_endpoint": f"{peer.url}/v1/traces", "mlflow_experiment": peer.experiment}}
        context = TrainingContext.initialize(config, algorithm="spo")
        with context.step(1, "policy_version"), context.span("optimize"):
            context.emit("TRAINER", loss=0.5)
        context.run.flush(10)
        wait_until(lambda: peer.experiment_id() and peer.traces())
        context.finish()
        assert peer.runs() == []
    finally:
        peer.close()
    assert keys(of_user(read_run(place, context.run.id), Metric)) == ["trainer/loss"]


@pytest.mark.parametrize("trouble", [Deed(500, {}, b"{}"), Deed(403, {}, b"{}"), Deed(404), Deed(drop=True)])
def test_traces_need_no_rest_api(mlflow_server: MlflowServer, trouble: Deed) -> None:
    """With the id of an experiment nothing is looked up before a trace is sent, and nothing holds it back."""
    peer = MlflowPeer(mlflow_server)
    experiment = mlflow_server.post("experiments/create", {"name": peer.experiment})["experiment_id"]
    peer.decide = lambda passed: trouble if API in passed.path else None
    try:
        context = train({"otlp_endpoint": peer.url, "mlflow_experiment_id": experiment})
        wait_until(peer.traces)
        sent = [each for each in peer.passed if each.path == "/v1/traces"]
        assert {each.headers["x-mlflow-experiment-id"] for each in sent} == {experiment}
        peer.decide = lambda passed: None
        context.finish(wait=60)
    finally:
        peer.close()


@pytest.mark.timeout(120)
def test_traces_reach_a_plain_collector() -> None:
    """A server that has `/v1/traces` and nothing of MLflow gets the spans; the metrics stay in the journal."""
    collector = Server()
    got: list[Received] = []

    def decide(received: Received) -> Reply:
        if received.path != "/v1/traces":
            return Reply(404, {}, b"404 page not found")
        got.append(received)
        return Reply(200, {"content-type": "application/x-protobuf"}, b"")

    collector.decide = decide
    try:
        context = train({"otlp_endpoint": collector.url})
        wait_until(lambda: got)
        assert "x-mlflow-experiment-id" not in got[0].headers
        assert context.run.finish(timeout=2).undelivered
    finally:
        stepscope.finish()
        collector.stop()
