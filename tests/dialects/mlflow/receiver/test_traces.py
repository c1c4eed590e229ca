"""Traces that name an MLflow run or experiment in their headers."""

import time
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub
from tests.hub.test_connections import wait_for

TRACES = "/v1/traces"


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> RestCalls:
    """The hub, by its MLflow API."""
    return RestCalls(hub.port)


@pytest.fixture
def experiment(server: RestCalls, request: pytest.FixtureRequest) -> str:
    """A new experiment."""
    return str(server.post("experiments/create", {"name": request.node.name}).body["experiment_id"])


def now() -> int:
    """The time as MLflow's clients send it."""
    return time.time_ns() // 1_000_000


def send(hub: RunningHub, service: str, **headers: str) -> Any:
    """Export two spans of a service, and return the run they are in once they are stored."""
    before = {row["id"]: row["counts"]["spans"] for row in hub.request("GET", "/api/runs").json()["runs"]}
    request = ExportTraceServiceRequest.FromString(bodies.spans(2))
    del request.resource_spans[0].resource.attributes[:]
    request.resource_spans[0].resource.attributes.append(bodies.attribute("service.name", service))
    answer = hub.post(TRACES, request.SerializeToString(), **headers)
    assert answer.status == 200
    found: list[Any] = []

    def has_more() -> bool:
        rows = hub.request("GET", "/api/runs").json()["runs"]
        found[:] = [row for row in rows if row["counts"]["spans"] > before.get(row["id"], 0)]
        return bool(found)

    wait_for(has_more)
    return found[0]


def test_a_run_header_puts_spans_into_the_run(hub: RunningHub, server: RestCalls, experiment: str) -> None:
    """The spans are in the run whose metrics MLflow's client logged, and that stays in its project."""
    run = server.create_run(experiment, start_time=now())
    row = send(hub, "one", x_mlflow_experiment_id=experiment, x_mlflow_run_id=run)
    assert (row["id"], row["project"]) == (run, "test_a_run_header_puts_spans_into_the_run")


def test_an_experiment_header_finds_the_only_run_at_work(hub: RunningHub, server: RestCalls, experiment: str) -> None:
    """A program that names its experiment only, as the first seed's, has its traces beside its metrics."""
    server.create_run(experiment, start_time=1)
    run = server.create_run(experiment, start_time=now())
    assert send(hub, "two", x_mlflow_experiment_id=experiment)["id"] == run


def test_traces_are_not_guessed_into_a_run(hub: RunningHub, server: RestCalls, experiment: str) -> None:
    """With two active runs the spans form a separate run, in the experiment's project."""
    runs = [server.create_run(experiment, start_time=now()) for _ in range(2)]
    row = send(hub, "three", x_mlflow_experiment_id=experiment)
    assert row["id"] not in runs
    assert row["project"] == "test_traces_are_not_guessed_into_a_run"


@pytest.mark.parametrize("header", ["99", "x", "9" * 40, ""])
def test_an_unknown_experiment_loses_nothing(hub: RunningHub, header: str) -> None:
    """The spans are taken as those of any OpenTelemetry client."""
    assert send(hub, f"four-{header}", x_mlflow_experiment_id=header)["project"] == f"four-{header}"


def test_a_trainer_that_posts_by_hand(hub: RunningHub, server: RestCalls, experiment: str) -> None:
    """A Rust trainer's three requests: a run, batches of 50 in which NaN is null, and traces that name the experiment.

    No batch is refused, so that none blocks those behind it, and the spans are beside the metrics.
    """
    created = {"experiment_id": experiment, "start_time": now(), "run_name": "rust_rl.ppo.pid-7"}
    run = server.post("runs/create", created).body["run"]["info"]["run_id"]
    for batch in range(3):
        metrics: list[dict[str, Any]] = [
            {"key": f"trainer/actor_loss_{at}", "value": None if at == 7 else at / 2, "timestamp": now(), "step": batch}
            for at in range(50)
        ]
        assert server.post("runs/log-batch", {"run_id": run, "metrics": metrics}).status == 200
    history = server.get("metrics/get-history", run_id=run, metric_key="trainer/actor_loss_7").body["metrics"]
    assert [(each["step"], each["value"]) for each in history] == [(0, "NaN"), (1, "NaN"), (2, "NaN")]
    assert send(hub, "rust_rl.ppo", x_mlflow_experiment_id=experiment)["id"] == run


def test_what_a_client_says_of_a_trace_is_an_event_of_its_run(hub: RunningHub, server: RestCalls) -> None:
    """It is stored once however often it is sent, in the trace of its spans; the client need not upload them again."""
    run, place = server.create_run(), "/api/3.0/mlflow/traces"
    info = {"trace_id": f"tr-{'ab' * 16}", "state": "ERROR", "tags": {"team": "a", "half": "\ud800"}}
    body = {"trace": {"trace_info": {**info, "trace_metadata": {"mlflow.sourceRun": run}}}}
    for _ in range(2):
        answer = server.post(place, body)
        assert answer.status == 200
        found = answer.body["trace"]["trace_info"]
        assert (found["trace_id"], found["tags"]["mlflow.trace.spansLocation"]) == (info["trace_id"], "TRACKING_STORE")

    def events() -> list[Any]:
        found: list[Any] = hub.request("GET", f"/api/logs?run={run}&name=mlflow.trace").json().get("logs", [])
        return found

    wait_for(events)
    assert [(each["trace_id"], each["attrs"]["tags"]["team"]) for each in events()] == [("ab" * 16, "a")]
    for wrong in ({}, {"trace": 1}, {"trace": {"trace_info": []}}):
        assert server.post(place, wrong).status == 400
    alone = {"trace_id": "tr-1", "trace_metadata": {"mlflow.sourceRun": "no"}}
    assert server.post(place, {"trace": {"trace_info": alone}}).status == 200
