"""Whatever arrives, decoding returns records or raises BadRequest."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.wire import frames
from stepscope.wire.otlp.decode.decode_request import Decoded, decode
from stepscope.wire.otlp.names import SIGNALS, Encoding, Signal
from stepscope.wire.otlp.replies import BadRequest
from tests.wire.otlp.bodies import ENCODINGS, SPAN, TIME, TRACE, decoded, gauge, log, records, request, span

signals = st.sampled_from(SIGNALS)

_WORDS = [
    "resourceSpans",
    "resourceMetrics",
    "resourceLogs",
    "resource",
    "attributes",
    "scopeSpans",
    "scopeMetrics",
    "scopeLogs",
    "scope",
    "spans",
    "metrics",
    "logRecords",
    "key",
    "value",
    "stringValue",
    "intValue",
    "doubleValue",
    "boolValue",
    "bytesValue",
    "arrayValue",
    "kvlistValue",
    "values",
    "traceId",
    "spanId",
    "parentSpanId",
    "name",
    "kind",
    "startTimeUnixNano",
    "endTimeUnixNano",
    "timeUnixNano",
    "events",
    "links",
    "status",
    "code",
    "message",
    "gauge",
    "sum",
    "histogram",
    "exponentialHistogram",
    "summary",
    "dataPoints",
    "asDouble",
    "asInt",
    "exemplars",
    "flags",
    "aggregationTemporality",
    "isMonotonic",
    "count",
    "bucketCounts",
    "explicitBounds",
    "scale",
    "zeroCount",
    "positive",
    "negative",
    "offset",
    "quantileValues",
    "quantile",
    "body",
    "severityNumber",
    "severityText",
    "eventName",
    "observedTimeUnixNano",
    "schemaUrl",
    "version",
]
_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(("NaN", "1", "-1", "1e400", "0" * 32, "a" * 32, "b" * 16, str(2**64), 2**63, TIME, str(TIME)))
)  # fmt: skip
_documents = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5),
    max_leaves=25,
)


def try_decode(signal: Signal, encoding: Encoding, data: bytes) -> Decoded | None:
    """Decode; what comes out can be written to a journal and read back."""
    try:
        found = decode(signal, encoding, data)
    except BadRequest:
        return None
    for group in found.groups:
        frames.pack_head(group.origin.writer())
        packed = [msgspec.msgpack.encode(record) for record in group.records]
        payload = memoryview(frames.pack_batch(1, packed))[frames.PREFIX_BYTES :]
        assert len(frames.unpack_batch(payload)[1]) == len(packed)
    return found


@given(signal=signals, encoding=st.sampled_from(ENCODINGS), data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(signal: Signal, encoding: Encoding, data: bytes) -> None:
    """Arbitrary bytes raise nothing but BadRequest."""
    try_decode(signal, encoding, data)


@given(signal=signals, cut=st.integers(0, 300), at=st.integers(0, 300), byte=st.integers(0, 255))
def test_damaged_requests_are_read_or_refused(signal: Signal, cut: int, at: int, byte: int) -> None:
    """A request with a byte changed, or cut short, raises nothing but BadRequest."""
    items: dict[Signal, Any] = {
        "traces": [span(attrs={"a": "b", "n": 5})], "metrics": [gauge(attrs={"train.step": 5})],
        "logs": [log(attrs={"a": 1.5}, trace_id=TRACE)],
    }  # fmt: skip
    body = bytearray(request(signal, items[signal]).SerializeToString())
    body[at % len(body)] = byte
    try_decode(signal, "protobuf", bytes(body))
    try_decode(signal, "protobuf", bytes(body[:cut]))


@settings(max_examples=200)
@given(signal=signals, document=_documents)
def test_any_json_is_read_or_refused(signal: Signal, document: Any) -> None:
    """Arbitrary JSON made of OTLP's words raises nothing but BadRequest."""
    try_decode(signal, "json", json.dumps(document).encode())


@settings(max_examples=200)
@given(signal=signals, item=st.dictionaries(st.sampled_from(_WORDS), _documents, max_size=8))
def test_any_item_is_taken_or_refused_alone(signal: Signal, item: Any) -> None:
    """One arbitrary item among good ones costs itself at most."""
    good: dict[Signal, Any] = {
        "traces": {"traceId": TRACE.hex(), "spanId": SPAN.hex(), "startTimeUnixNano": "1"},
        "metrics": {"name": "m", "gauge": {"dataPoints": [{"timeUnixNano": "1", "asInt": "1"}]}},
        "logs": {"timeUnixNano": "1"},
    }
    outer, inner, items = {
        "traces": ("resourceSpans", "scopeSpans", "spans"),
        "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
        "logs": ("resourceLogs", "scopeLogs", "logRecords"),
    }[signal]
    document = {outer: [{inner: [{items: [good[signal], item, good[signal]]}]}]}
    found = try_decode(signal, "json", json.dumps(document).encode())
    assert found is not None
    assert len(records(found)) >= 2


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(("encoding", "body"), [("protobuf", b""), ("json", b"{}")])
def test_an_empty_request_holds_nothing(signal: Signal, encoding: Encoding, body: bytes) -> None:
    """An empty request is fine and has neither records nor refusals."""
    found = decode(signal, encoding, body)
    assert (found.groups, found.rejections.count) == ([], 0)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"5", b"nope", b'{"resourceSpans": 5}', b'{"resourceSpans": [5]}', b"[" * 100_000,
     b'{"resourceSpans": [{"scopeSpans": {}}]}', b'{"resourceSpans": [{"scopeSpans": [{"spans": 1}]}]}',
     b'{"resourceSpans": [{"resource": {"attributes": [7]}}]}', b'"\\ud800"'],
)  # fmt: skip
def test_a_request_of_the_wrong_shape_is_refused_as_a_whole(body: bytes) -> None:
    """A request whose resources or scopes cannot be read is refused as a whole."""
    with pytest.raises(BadRequest, match="the body is"):
        decode("traces", "json", body)


def test_protobuf_that_is_none_says_so() -> None:
    """The message names the request that was expected."""
    with pytest.raises(BadRequest, match="not an ExportMetricsServiceRequest"):
        decode("metrics", "protobuf", b"\xff\xff")


@pytest.mark.parametrize("sent", SIGNALS)
@pytest.mark.parametrize("taken", SIGNALS)
def test_a_request_sent_to_another_path_does_not_crash(sent: Signal, taken: Signal) -> None:
    """The bytes of one signal are read as another's, or refused."""
    items: dict[Signal, Any] = {"traces": [span()], "metrics": [gauge()], "logs": [log()]}
    try_decode(taken, "protobuf", request(sent, items[sent]).SerializeToString())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_resources_of_one_process_make_one_group(encoding: Encoding) -> None:
    """A client that repeats its resource for each item is grouped all the same."""
    message = request("traces", [span(name="a")], {"service.name": "s", "service.instance.id": "i"})
    message.MergeFrom(request("traces", [span(name="b")], {"service.name": "s", "service.instance.id": "i"}))
    message.MergeFrom(request("traces", [span(name="c")], {"service.name": "s", "service.instance.id": "j"}))
    found = decoded("traces", message, encoding)
    assert [[record.name for record in group.records] for group in found.groups] == [["a", "b"], ["c"]]
