"""Unmodified OpenTelemetry exporters, over HTTP and gRPC, against a real hub."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub, stored_columns

grpc = pytest.importorskip("grpc")
sdk = pytest.importorskip("tests.hub.sdk_exporters", exc_type=ImportError)


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that both kinds of exporters fed, stopped again."""
    pytest.importorskip("tests.chdb")
    running = RunningHub(tmp_path_factory.mktemp("fed") / "home").start()
    try:
        sdk.emit(sdk.over_http(running), "by-http")
        sdk.emit(sdk.over_grpc(running), "by-grpc")
        for receiver in ("otlp_http", "otlp_grpc"):
            running.wait_stored(receiver, sdk.COUNT + 6)
        assert running.stop() == 0
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.kill()


@pytest.mark.parametrize("run", ["by-http", "by-grpc"])
def test_everything_is_stored(fed: RunningHub, run: str) -> None:
    """Spans with steps and rank, the counter and the lines of the SDK are stored, secrets masked."""
    number = f"(SELECT max(run) FROM runs WHERE id = '{run}')"
    sql = f"SELECT step, rank, attr_values FROM spans WHERE run = {number} ORDER BY step"
    spans = stored_columns(fed.home, sql)
    assert list(spans["step"]) == list(range(sdk.COUNT))
    assert set(spans["rank"]) == {1}
    assert "hunter2" not in str(spans["attr_values"])
    journal = (fed.home / "hub" / "journal").rglob("*.seg")
    assert not [path for path in journal if b"hunter2" in path.read_bytes()]
    lines = stored_columns(fed.home, f"SELECT body FROM logs WHERE run = {number} ORDER BY body")
    assert list(lines["body"]) == [f"line {index}" for index in range(5)]
    counter = f"SELECT series FROM series WHERE run = {number} AND key = 'done'"
    sql = f"SELECT value FROM metrics WHERE series IN ({counter})"
    assert set(stored_columns(fed.home, sql)["value"]) == {float(sdk.COUNT)}


def test_links_have_the_attributes_that_were_given(hub: RunningHub) -> None:
    """The flags that an exporter writes for links are a field, not an attribute, local and remote."""
    context = sdk.trace.SpanContext(7, 9, True, sdk.trace.TraceFlags(1))
    exporter = sdk.over_http(hub)[0]
    provider = sdk.TracerProvider(resource=sdk.Resource({"train.run.id": "linked"}))
    provider.add_span_processor(sdk.BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("first") as first:
        given = [sdk.trace.Link(first.get_span_context(), {"why": "retry"}), sdk.trace.Link(context)]
        tracer.start_span("second", links=given).end()
    provider.shutdown()
    hub.wait_stored("otlp_http", 2)
    (span,) = hub.request("GET", "/api/spans?run=linked&name=second").json()["spans"]
    assert [(link["attrs"], link["flags"]) for link in span["links"]] == [({"why": "retry"}, 0x100), ({}, 0x300)]


def _call(hub: RunningHub, body: bytes, signal: str = "trace.v1.TraceService", **options: Any) -> bytes:
    limits = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{hub.grpc_port}", options=limits) as channel:
        call: Callable[..., bytes] = channel.unary_unary(f"/opentelemetry.proto.collector.{signal}/Export")
        return call(body, timeout=300, **options)


def test_grpc_answers(hub: RunningHub) -> None:
    """Empty is a success, unreadable INVALID_ARGUMENT, large is taken, huge and unknown are refused."""
    assert _call(hub, b"") == b""
    with pytest.raises(grpc.RpcError) as bad:
        _call(hub, b"\xff\xff")
    assert bad.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert _call(hub, bodies.spans(200, note="x" * 100_000)) == b""
    with pytest.raises(grpc.RpcError) as huge:
        _call(hub, bytes(65 * 1024 * 1024))
    assert huge.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as bomb:
        _call(hub, bytes(100 * 1024 * 1024), compression=grpc.Compression.Gzip)
    assert bomb.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as unknown:
        _call(hub, b"", "profiles.v1development.ProfilesService")
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
