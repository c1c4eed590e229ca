"""Answers that any OTLP client understands, and the answers of any server understood."""

import contextlib
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from stepscope.model.errors import StepscopeError
from stepscope.wire.otlp.names import SIGNALS, Encoding, Signal
from stepscope.wire.otlp.replies import (
    INVALID_ARGUMENT,
    UNAVAILABLE,
    BadRequest,
    NotOtlp,
    PartialSuccess,
    Rejections,
    Status,
    read_http_reply,
    read_reply,
    read_status,
    write_reply,
    write_status,
)
from tests.wire.otlp.bodies import ENCODINGS

RESPONSES: dict[Signal, Any] = {
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
}


def parsed(signal: Signal, encoding: Encoding, body: bytes) -> Any:
    """Read a reply with the library."""
    response = RESPONSES[signal][0]
    return response.FromString(body) if encoding == "protobuf" else json_format.Parse(body, response())


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_full_success_leaves_partial_success_unset(signal: Signal, encoding: Encoding) -> None:
    """As specified, full success leaves `partial_success` unset."""
    body = write_reply(encoding, Rejections(signal))
    assert not parsed(signal, encoding, body).HasField("partial_success")
    assert read_reply(signal, encoding, body) == PartialSuccess()


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_partial_success_says_how_many_and_why(signal: Signal, encoding: Encoding) -> None:
    """The library reads it, and so do we."""
    refused = Rejections(signal)
    for name in ("a", "b", "c", "d", "d"):
        refused.add("bad id", name)
    refused.add("no time", count=300)
    body = write_reply(encoding, refused)
    partial = parsed(signal, encoding, body).partial_success
    assert getattr(partial, RESPONSES[signal][1]) == 305
    assert partial.error_message.endswith("rejected: bad id (5: a, b, c); no time (300)")
    assert read_reply(signal, encoding, body) == PartialSuccess(305, partial.error_message)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("after", [None, 0.0, 1.5, 30.0])
def test_a_status_is_read_back(encoding: Encoding, after: float | None) -> None:
    """Code, message and the wish to be asked again later."""
    status = Status(UNAVAILABLE, "the journal is full", after)
    assert read_status(encoding, write_status(encoding, status)) == status


def test_a_status_is_google_rpc_status() -> None:
    """Byte for byte what googleapis' own classes write: code 1, message 2, details 3 with RetryInfo."""
    body = write_status("protobuf", Status(INVALID_ARGUMENT, "no", 2.5))
    retry = b"\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01"
    detail = b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12" + bytes([len(retry)]) + retry
    assert body == b"\x08\x03\x12\x02no\x1a" + bytes([len(detail)]) + detail
    assert json.loads(write_status("json", Status(3, "no", 2.5))) == {
        "code": 3,
        "message": "no",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.500s"}],
    }


@pytest.mark.parametrize(
    ("encoding", "body", "message"),
    [
        ("protobuf", b"<html>502</html>", "<html>502</html>"),
        ("protobuf", b'{"detail": "no experiment"}', '{"detail": "no experiment"}'),
        ("json", b'{"detail": "no experiment"}', '{"detail": "no experiment"}'),
        ("json", b'{"error_code": "X", "message": "gone"}', "gone"),
        ("json", b"upstream timed out", "upstream timed out"),
        ("protobuf", b"", ""),
    ],
)
def test_what_is_no_status_becomes_the_message(encoding: Encoding, body: bytes, message: str) -> None:
    """Proxies and MLflow answer what they like; the user sees it."""
    assert read_status(encoding, body).message == message


@given(encoding=st.sampled_from(ENCODINGS), body=st.binary(max_size=80), signal=st.sampled_from(SIGNALS))
def test_any_answer_can_be_read(encoding: Encoding, body: bytes, signal: Signal) -> None:
    """A server cannot make a sink raise anything else than that the body is not OTLP's."""
    with contextlib.suppress(NotOtlp):
        assert read_reply(signal, encoding, body).rejected >= 0
    with contextlib.suppress(NotOtlp):
        assert read_http_reply(signal, encoding, "text/plain", body).rejected >= 0
    read_status(encoding, body)


@given(encoding=st.sampled_from(ENCODINGS), message=st.text(alphabet=st.characters(), max_size=20))
def test_any_message_can_be_written(encoding: Encoding, message: str) -> None:
    """Any message can be encoded, also with lone surrogates."""
    assert read_status(encoding, write_status(encoding, Status(3, message))).code == 3


@pytest.mark.parametrize("count", [-5, "x", {}, [], None, "12"])
def test_odd_counts_in_json_are_harmless(count: Any) -> None:
    """Counts in JSON that are not integers count as 0."""
    body = json.dumps({"partialSuccess": {"rejectedSpans": count, "errorMessage": "m"}}).encode()
    assert read_reply("traces", "json", body).rejected == (12 if count == "12" else 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_warning_rejects_nothing(signal: Signal, encoding: Encoding) -> None:
    """What was left out of items that were taken is a message with 0 rejected, as OTLP asks."""
    rejections = Rejections(signal)
    rejections.warn("a link without valid ids", "work", count=2)
    body = write_reply(encoding, rejections)
    reply = parsed(signal, encoding, body).partial_success
    assert getattr(reply, RESPONSES[signal][1]) == 0
    assert "a link without valid ids (2: work)" in reply.error_message
    assert read_reply(signal, encoding, body).rejected == 0


def test_nothing_refused_says_nothing() -> None:
    """No count, no message."""
    assert (Rejections("logs").count, Rejections("logs").message) == (0, "")


def test_reasons_are_counted_and_the_first_names_kept() -> None:
    """A thousand bad spans make a short message."""
    refused = Rejections("traces")
    for n in range(1000):
        refused.add("bad id", f"span {n}")
    assert refused.reasons == {"bad id": 1000}
    assert refused.message == "1000 spans rejected: bad id (1000: span 0, span 1, span 2)"


def test_names_are_cut() -> None:
    """A name of a megabyte does not come back."""
    refused = Rejections("metrics")
    refused.add("no value", "x" * 1_000_000)
    assert len(refused.message) < 200


def test_bad_request_is_ours_and_a_value_error() -> None:
    """One class for every body that cannot be read."""
    assert issubclass(BadRequest, StepscopeError)
    assert issubclass(BadRequest, ValueError)
