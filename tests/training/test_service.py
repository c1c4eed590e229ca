"""The example service, with FastAPI, Redis and Ray really running: what the document's tables promise is recorded."""

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Histogram, Log, Metric, Span
from stepscope.testing import read_batches
from stepscope.training.service import init_telemetry, shutdown_telemetry
from tests.ray_peer import connected
from tests.training.service_peers import EXAMPLES, python_path
from tests.training.service_peers import redis_url as redis_url

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="its instrumentation is not installed")

SESSION = "session-1"


@dataclass
class Recorded:
    """What the service left, and what it answered."""

    spans: list[tuple[int, Span]]
    metrics: list[Metric]
    logs: list[Log]
    answers: dict[str, Any]

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        return [span for _, span in self.spans if span.name == name]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Recorded:
    """One visit to the service from a client's session, read back after its end."""
    home = tmp_path_factory.mktemp("service")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STEPSCOPE_SINKS", "TUFT_OTEL_DEBUG", "STEPSCOPE_HOME"):
            patch.delenv(name, raising=False)
        patch.syspath_prepend(str(EXAMPLES))
        run = init_telemetry(EXAMPLES / "service" / "telemetry.yaml", home=home, probes=False, shipper="none")
        assert run is not None
        from stepscope.integrations.ray import runtime_env

        env = runtime_env({"env_vars": {"PYTHONPATH": python_path()}})
        try:
            with connected(env):
                answers = asyncio.run(visit(redis_url))
        finally:
            shutdown_telemetry(10)
    return read_back(home, run, answers)


async def visit(redis_url: str) -> dict[str, Any]:
    """Train, save, sample and fail, as a client would."""
    from service.app import make_app

    logging.getLogger("tuft.server").setLevel(logging.INFO)
    app = make_app(redis_url)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service", timeout=300) as client,
    ):
        said = {"session_id": SESSION, "base_model": "base", "lora_rank": 8}
        run_id = (await client.post("/models", json=said)).json()["training_run_id"]
        answers: dict[str, Any] = {"training_run_id": run_id}
        for operation, arguments in (
            ("forward", {"data": [1.0, 2.0]}),
            ("forward_backward", {"data": [1.0, 2.0]}),
            ("optim_step", {"learning_rate": 0.1}),
            ("save_checkpoint", {"type": "training"}),
            ("forward_backward", {"data": []}),
        ):
            path = f"/models/{run_id}/{operation}"
            asked = await client.post(path, json={"session_id": SESSION, "arguments": arguments})
            key = operation if arguments.get("data") != [] else "failed"
            answers[key] = await result(client, asked.json()["request_id"])
        asked = await client.post("/samples", json={"session_id": SESSION, "run_id": run_id, "count": 3})
        answers["sampling_session_id"] = asked.json()["sampling_session_id"]
        answers["sample"] = await result(client, asked.json()["request_id"])
        answers["unloaded"] = (await client.delete(f"/models/{run_id}")).json()
        return answers


async def result(client: Any, request_id: str) -> dict[str, Any]:
    """Poll a future until it is done."""
    async with asyncio.timeout(120):
        while True:
            found = (await client.get(f"/futures/{request_id}")).json()
            if found["status"] != "pending":
                return {"request_id": request_id, **found}
            await asyncio.sleep(0.05)


def read_back(home: Path, run: stepscope.Run, answers: dict[str, Any]) -> Recorded:
    """Everything that any process of the run wrote, spans with the process."""
    batches = list(read_batches(home, run.id))
    records = [(batch.writer.pid, record) for batch in batches for record in batch.records]
    return Recorded(
        [(pid, each) for pid, each in records if isinstance(each, Span) and each.duration is not None],
        [each for _, each in records if isinstance(each, Metric)],
        [each for _, each in records if isinstance(each, Log)],
        answers,
    )


def test_the_service_works(recorded: Recorded) -> None:
    """The example service trains, saves, samples, and reports failures."""
    answers = recorded.answers
    assert answers["forward_backward"]["result"] == {"loss": 2.25, "tokens": 2}
    assert answers["optim_step"]["result"]["weight"] == pytest.approx(0.3)
    assert answers["sample"]["result"] == pytest.approx([0.3] * 3)
    assert answers["failed"]["status"] == "failed"
    assert answers["unloaded"] == {"forgotten": 2}


@pytest.mark.parametrize(
    "name",
    [
        "training_controller.create_model",
        "training_controller.run_forward",
        "training_controller.run_forward_backward",
        "training_controller.run_optim_step",
        "training_controller.save_checkpoint",
        "sampling_controller.create_sampling_session",
        "sampling_controller.run_sample",
        "future_store.execute_operation",
        "redis.SET",
        "redis.GET",
        "redis.DEL",
        "redis.SCAN",
        "hf_model.forward_backward",
        "hf_model.optim_step",
        "hf_model.save_state",
        "POST /models",
    ],
)
def test_every_span_of_the_document(recorded: Recorded, name: str) -> None:
    """HTTP, controllers, persistence and actors: each is recorded."""
    assert recorded.named(name)


def test_actor_spans_come_from_the_actor_and_are_in_the_request_s_trace(recorded: Recorded) -> None:
    """From the HTTP request down to the model there is one trace, and it crosses a process."""
    by_id = {span.span_id: (pid, span) for pid, span in recorded.spans}
    pid, inner = next((pid, each) for pid, each in recorded.spans if each.name == "hf_model.optim_step")
    assert pid != os.getpid()
    path = [inner.name]
    while inner.parent_id in by_id:
        above, inner = by_id[inner.parent_id]
        path.append(inner.name)
    assert path == [
        "hf_model.optim_step",
        "Model.optim_step",
        "training_controller.run_optim_step",
        "future_store.execute_operation",
        "POST /models/{run_id}/{operation}",
    ]
    assert above == os.getpid()


def test_keys_of_every_span(recorded: Recorded) -> None:
    """The session is on all of its spans, actor's too; the run, the request and the operation on theirs."""
    answers = recorded.answers
    run_id, request_id = answers["training_run_id"], answers["optim_step"]["request_id"]
    expected = {
        "tuft.session_id": SESSION,
        "tuft.training_run_id": run_id,
        "tuft.request_id": request_id,
        "tuft.operation_type": "optim_step",
    }
    for name in ("hf_model.optim_step", "training_controller.run_optim_step"):
        (span,) = recorded.named(name)
        assert expected.items() <= span.attrs.items()
    operations = {span.attrs["tuft.operation_type"] for span in recorded.named("future_store.execute_operation")}
    assert operations == {"forward", "forward_backward", "optim_step", "save_checkpoint", "sample"}
    assert {span.attrs["tuft.session_id"] for span in recorded.named("future_store.execute_operation")} == {SESSION}
    (created,) = recorded.named("training_controller.create_model")
    assert {"tuft.base_model": "base", "tuft.lora_rank": 8, "tuft.session_id": SESSION}.items() <= created.attrs.items()
    (sampled,) = recorded.named("sampling_controller.run_sample")
    assert sampled.attrs["tuft.sampling_session_id"] == answers["sampling_session_id"]
    assert {span.attrs["tuft.backward"] for span in recorded.named("hf_model.forward_backward")} == {True, False}


def test_failed_futures_show_error(recorded: Recorded) -> None:
    """From the actor to the store each span of the failed operation has the ERROR status, and no other has it."""
    request_id = recorded.answers["failed"]["request_id"]
    failed = {span.name for _, span in recorded.spans if span.status == 2}
    assert failed == {
        "hf_model.forward_backward",
        "Model.forward_backward",
        "training_controller.run_forward_backward",
        "future_store.execute_operation",
    }
    assert {span.attrs["tuft.request_id"] for _, span in recorded.spans if span.status == 2} == {request_id}


def test_a_poll_is_one_http_span(recorded: Recorded) -> None:
    """Receiving and sending are no spans of their own."""
    assert not [span.name for _, span in recorded.spans if "http send" in span.name or "http receive" in span.name]
    (created,) = recorded.named("POST /models")
    assert created.span_kind == 2


def test_redis_spans_say_the_operation_and_no_key(recorded: Recorded) -> None:
    """Redis spans have db.system, db.operation and the context's keys, but no Redis keys."""
    for name in ("SET", "GET", "DEL", "SCAN"):
        attrs = recorded.named(f"redis.{name}")[0].attrs
        assert (attrs["db.system"], attrs["db.operation"]) == ("redis", name)
        assert not [value for key, value in attrs.items() if not key.startswith(("tuft.", "db."))]


def test_every_workflow_metric(recorded: Recorded) -> None:
    """All fifteen are recorded by the service, and what goes up comes down."""
    last: dict[str, dict[tuple[Any, ...], Any]] = {}
    for each in recorded.metrics:
        for name, value in each.values.items():
            plain = {key: given for key, given in each.attrs.items() if key != ATTR_EXEMPLARS}
            last.setdefault(name, {})[tuple(sorted(plain.items()))] = value
    from stepscope.training.service.service_metrics import INSTRUMENTS

    assert set(INSTRUMENTS) <= set(last)
    assert last["tuft.training.models.active"][(("base_model", "base"),)] == 0
    assert last["tuft.futures.queue_length"][(("queue_state", "active"),)] == 0
    completed = {dict(key)["status"] for key in last["tuft.futures.completed"]}
    assert completed == {"ready", "failed"}
    durations = last["tuft.redis.operation.duration"]
    assert {dict(key)["operation"] for key in durations} >= {"SET", "GET", "DEL", "SCAN"}
    assert all(isinstance(each, Histogram) for each in durations.values())


def test_log_lines_carry_the_session_once(recorded: Recorded) -> None:
    """A line of a request has its keys and its span, and is there once."""
    (line,) = [each for each in recorded.logs if each.body == "creating a model"]
    assert line.attrs["tuft.session_id"] == SESSION
    (server,) = recorded.named("POST /models")
    assert line.span_id == server.span_id
