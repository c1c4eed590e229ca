"""Ids, queue states and metrics are read from the bodies of a service, and garbage says nothing."""

import gzip
import json
from importlib import import_module
from typing import Any

import pytest
import zstandard

from stepscope.dialects.tinker.receiver.request_ids import Ids, Poll, read_ids, read_metrics, read_poll, route_name

JSON = {"content-type": "application/json"}
PROTOBUF = {"content-type": "application/x-protobuf"}


def forward_backward() -> bytes:
    """A request as the client writes it."""
    request: Any = import_module("tinker.proto.tinker_public_pb2").ForwardBackwardRequest()
    request.model_id, request.loss_fn = "s:train:0", "cross_entropy"
    return bytes(request.SerializeToString())


@pytest.mark.parametrize(
    ("headers", "data", "ids"),
    [
        (JSON, b'{"session_id": "s", "model_seq_id": 0}', Ids(session_id="s")),
        (JSON, b'{"target":{"sampling_session_id":"t"},"request_id":"r"', Ids(sampling_session_id="t", request_id="r")),
        ({**JSON, "content-encoding": "gzip"}, gzip.compress(b'{"request_id":"r"}', mtime=0), Ids(request_id="r")),
        ({**JSON, "content-encoding": "br"}, b'{"request_id":"r"}', Ids()),
        (JSON, b"\xff\x00", Ids()),
        (PROTOBUF, b"", Ids()),
        (PROTOBUF, b"\x0a\xff\xff\xff", Ids()),
        ({**PROTOBUF, "content-encoding": "zstd"}, b"no zstd", Ids()),
    ],
)
def test_ids(headers: dict[str, str], data: bytes, ids: Ids) -> None:
    """Ids are read from the first bytes of a body, also if it is compressed."""
    assert read_ids(headers, data) == ids


def test_the_model_of_a_forward_pass() -> None:
    """The model id is read from the client's protobuf, plain or compressed."""
    pytest.importorskip("tinker")
    data = forward_backward()
    for headers, body in ((PROTOBUF, data), ({**PROTOBUF, "content-encoding": "zstd"}, zstandard.compress(data))):
        assert read_ids(headers, body) == Ids(model_id="s:train:0")


@pytest.mark.parametrize(
    ("status", "body", "poll"),
    [
        (200, {"type": "try_again", "queue_state": "paused_capacity"}, Poll(False, "", "paused_capacity")),
        (200, {"status": "complete_metadata", "response_payload_size": 3}, Poll(False)),
        (200, {"error": "bad prompt", "category": "User"}, Poll(True, "User")),
        (200, {"type": "optim_step", "note": {"error": "no"}}, Poll(True)),
        (408, {"queue_state": "active", "queue_state_reason": "busy"}, Poll(False, "", "active", "busy")),
        (429, {}, Poll(False)),
        (500, {}, Poll(False)),
        (410, {}, Poll(True, "HTTP 410")),
        (403, {}, Poll(True, "HTTP 403")),
    ],
)
def test_polls(status: int, body: dict[str, Any], poll: Poll) -> None:
    """An answer means what it means to the client: over, failed, or to be asked again."""
    assert read_poll(status, JSON, json.dumps(body).encode()) == poll


def test_metrics() -> None:
    """Numbers of a result are metrics, in JSON and protobuf; other values are left out."""
    pytest.importorskip("tinker")
    assert read_metrics(JSON, b'{"metrics": {"loss": 1.5, "note": "x", "flag": null}}') == {"loss": 1.5}
    output: Any = import_module("tinker.proto.tinker_public_pb2").ForwardBackwardOutput()
    output.metrics["loss:sum"] = 0.25
    assert read_metrics(PROTOBUF, output.SerializeToString()) == {"loss:sum": 0.25}
    for garbage in (b"", b"[]", b"{", b"\x1a\xff", b'{"metrics": 7}'):
        assert read_metrics(JSON, garbage) == read_metrics(PROTOBUF, garbage) == {}


@pytest.mark.parametrize(
    ("path", "name", "route"),
    [
        ("/api/v1/forward_backward", "forward_backward", "/api/v1/forward_backward"),
        ("/api/v1/sessions/9f1c-22/finish", "sessions.finish", "/api/v1/sessions/{id}/finish"),
        (
            "/api/v1/training_runs/a:b/checkpoints",
            "training_runs.checkpoints",
            "/api/v1/training_runs/{id}/checkpoints",
        ),
        ("/", "request", "/"),
    ],
)
def test_names_of_operations(path: str, name: str, route: str) -> None:
    """Ids in paths make no new names."""
    assert route_name(path) == (name, route)
