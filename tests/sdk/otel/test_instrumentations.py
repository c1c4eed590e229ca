"""Libraries instrumented with OpenTelemetry's own packages, against real servers on loopback."""

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fastapi
import httpx
import pytest
import redis
import uvicorn
from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.redis import RedisInstrumentor

import stepscope
from stepscope.model.records import Histogram, Metric, Span
from stepscope.testing import Recording, recorded

INTERNAL, SERVER, CLIENT = 1, 2, 3


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def app() -> fastapi.FastAPI:
    """An app whose handlers trace, log and fail."""
    app = fastapi.FastAPI()

    @app.get("/score/{name}")
    async def score(name: str) -> dict[str, object]:
        with stepscope.span("inference", model=name):
            await asyncio.sleep(0.01)
        return {"name": name, "tenant": baggage.get_baggage("tenant")}

    @app.get("/broken")
    def broken() -> None:
        raise ValueError("no weights")

    FastAPIInstrumentor.instrument_app(app)
    return app


@pytest.fixture
def server(app: fastapi.FastAPI, until: Callable[..., None]) -> Iterator[str]:
    """The app served by uvicorn on a thread of this process; its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(300)


@pytest.fixture
def client() -> Iterator[None]:
    """Have httpx instrumented."""
    HTTPXClientInstrumentor().instrument()
    yield
    HTTPXClientInstrumentor().uninstrument()


async def call_directly(app: fastapi.FastAPI) -> httpx.Response:
    """Call the app without a server; when this returns the app is done."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as caller:
        return await caller.get("/score/tiny")


def one(recording: Recording, name: str, kind: int = INTERNAL) -> Span:
    """The one finished span of a name and kind."""
    spans = [span for span in recording.of(Span) if (span.name, span.span_kind) == (name, kind)]
    found = [span for span in spans if span.duration is not None]
    assert len(found) == 1, [(span.name, span.span_kind) for span in recording.of(Span)]
    result: Span = found[0]
    return result


@pytest.mark.usefixtures("client")
def test_a_request_is_one_trace_through_client_and_server(server: str, until: Callable[..., None]) -> None:
    """The server's span is the child of the client's, our spans are around and inside, all in the step."""
    with recorded(otel=True) as recording, recording.run.step(12), recording.run.span("sample"):
        token = otel_context.attach(baggage.set_baggage("tenant", "blue"))
        answer = httpx.get(f"{server}/score/tiny")
        otel_context.detach(token)
        until(lambda: len(recording.run.open_spans) == 2)
    assert answer.json() == {"name": "tiny", "tenant": "blue"}
    outer, call = one(recording, "sample"), one(recording, "GET", CLIENT)
    served, inner = one(recording, "GET /score/{name}", SERVER), one(recording, "inference")
    assert [span.parent_id for span in (call, served, inner)] == [outer.span_id, call.span_id, served.span_id]
    assert {span.trace_id for span in (outer, call, served, inner)} == {outer.trace_id}
    assert {span.step for span in (outer, call, served, inner)} == {12}
    assert call.scope == "opentelemetry.instrumentation.httpx"
    assert served.scope == "opentelemetry.instrumentation.fastapi"
    assert served.attrs["http.route"] == "/score/{name}"


@pytest.mark.usefixtures("client")
def test_an_error_in_the_server_is_on_its_span(server: str, until: Callable[..., None]) -> None:
    """A handler that raises fails the server's span, with the exception, and the client's by its answer."""
    with recorded(otel=True) as recording:
        assert httpx.get(f"{server}/broken").status_code == 500
        until(lambda: not recording.run.open_spans)
    served, call = one(recording, "GET /broken", SERVER), one(recording, "GET", CLIENT)
    assert (served.status, call.status) == (2, 2)
    assert [event.attrs["exception.message"] for event in served.events] == ["no weights"]


def test_requests_measure_themselves(app: fastapi.FastAPI) -> None:
    """The histograms and gauges of the instrumentation are journaled, by route and status."""
    with recorded(otel=True) as recording:
        for _ in range(3):
            asyncio.run(call_directly(app))
    found = [metric for metric in recording.of(Metric) if metric.instrument is not None]
    durations = [
        (metric, value) for metric in found for key, value in metric.values.items() if key.endswith(".duration")
    ]
    metric, histogram = durations[-1]
    assert isinstance(histogram, Histogram)
    assert histogram.count == 3
    assert metric.instrument is not None
    assert metric.instrument.scope.endswith(("fastapi", "asgi"))
    active = [value for metric in found for key, value in metric.values.items() if "active_requests" in key]
    assert active[-1] == 0


def test_in_process_calls_nest_without_a_server(app: fastapi.FastAPI) -> None:
    """An async client that calls the app directly puts its spans below ours, in one event loop."""

    with recorded(otel=True) as recording, recording.run.step(1):
        assert asyncio.run(call_directly(app)).status_code == 200
    served = one(recording, "GET /score/{name}")
    assert served.parent_id == one(recording, "train.step").span_id
    assert one(recording, "inference").parent_id == served.span_id


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_redis_commands_are_spans(tmp_path: Path, until: Callable[..., None]) -> None:
    """Commands to a real Redis, single and in a pipeline, are client spans below ours."""
    port = free_port()
    line = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    store = redis.Redis(port=port)

    def answers() -> bool:
        try:
            return bool(store.ping())
        except redis.ConnectionError:
            time.sleep(0.02)
            return False

    RedisInstrumentor().instrument()
    try:
        until(answers)
        with recorded(otel=True) as recording, recording.run.step(8), recording.run.span("share"):
            store.set("weights", "v1")
            assert store.get("weights") == b"v1"
            store.pipeline().incr("n").incr("n").execute()
            with pytest.raises(redis.ResponseError):
                store.lpush("weights", "x")
    finally:
        RedisInstrumentor().uninstrument()
        store.close()
        process.terminate()
        process.wait(300)
    outer = one(recording, "share")
    commands = [span for span in recording.of(Span) if span.span_kind == CLIENT]
    assert [span.name for span in commands] == ["SET", "GET", "INCRBY INCRBY", "LPUSH"]
    assert {span.parent_id for span in commands} == {outer.span_id}
    assert {span.step for span in commands} == {8}
    assert commands[0].attrs["db.system"] == "redis"
    assert "v1" not in str(commands[0].attrs)
    assert [span.status for span in commands] == [0, 0, 0, 2]
