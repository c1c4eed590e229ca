"""Spans: what is kept, what is refused, what is mended."""

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1 import trace_pb2

from stepscope.model.records import Link, Span, SpanEvent
from stepscope.wire.otlp.decode.decode_request import BAD_END, BAD_PARENT, BAD_SPAN_ID, BAD_TIME, BAD_TRACE_ID
from stepscope.wire.otlp.decode.origin import BAD_LINK
from stepscope.wire.otlp.names import Encoding
from tests.wire.otlp.bodies import (
    ENCODINGS,
    SPAN,
    TIME,
    TRACE,
    attributes,
    decoded,
    records,
    request,
    span,
)

pytestmark = pytest.mark.parametrize("encoding", ENCODINGS)


def one(message: Any, encoding: Encoding, **options: Any) -> Span:
    """The only span of a request that holds this one."""
    (found,) = records(decoded("traces", request("traces", [message], **options), encoding))
    assert isinstance(found, Span)
    return found


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"trace_id": b""}, BAD_TRACE_ID),
        ({"trace_id": bytes(16)}, BAD_TRACE_ID),
        ({"trace_id": b"short"}, BAD_TRACE_ID),
        ({"span_id": b""}, BAD_SPAN_ID),
        ({"span_id": bytes(8)}, BAD_SPAN_ID),
        ({"span_id": bytes(range(9))}, BAD_SPAN_ID),
        ({"start_time_unix_nano": 0}, BAD_TIME),
        ({"start_time_unix_nano": 2**63}, BAD_TIME),
    ],
)
def test_a_bad_span_is_refused_alone(encoding: Encoding, fields: dict[str, Any], reason: str) -> None:
    """Bad ids or no start cost that span, counted and named; its neighbours are kept."""
    message = request("traces", [span(name="first"), span(**{"name": "bad", **fields}), span(name="last")])
    found = decoded("traces", message, encoding)
    assert [record.name for record in records(found)] == ["first", "last"]
    assert found.rejections.reasons == {reason: 1}
    assert found.rejections.message == f"1 spans rejected: {reason} (1: bad)"


def test_every_part_of_a_span_is_kept(encoding: Encoding) -> None:
    """Parent, kind, status, events, links, trace state and the counts of what the client dropped."""
    message = span(
        parent_span_id=SPAN[::-1],
        kind=3,
        status=trace_pb2.Status(code=2, message="boom"),
        trace_state="k=v",
        dropped_attributes_count=1,
        dropped_events_count=2,
        dropped_links_count=3,
        events=[trace_pb2.Span.Event(time_unix_nano=TIME + 1, name="e", attributes=attributes({"x": 1.5}))],
        links=[trace_pb2.Span.Link(trace_id=TRACE[::-1], span_id=SPAN, attributes=attributes({"y": True}))],
        attrs={"a": "b"},
    )
    found = one(message, encoding)
    assert (found.parent_id, found.span_kind, found.status, found.message) == (SPAN[::-1], 3, 2, "boom")
    assert found.attrs == {
        "a": "b",
        "w3c.tracestate": "k=v",
        "otel.dropped_attributes_count": 1,
        "otel.dropped_events_count": 2,
        "otel.dropped_links_count": 3,
    }
    assert found.events == (SpanEvent(TIME + 1, "e", {"x": 1.5}),)
    assert found.links == (Link(TRACE[::-1], SPAN, {"y": True}),)


def test_a_link_to_nowhere_is_left_out(encoding: Encoding) -> None:
    """A link with invalid ids does not cost its span."""
    links = [trace_pb2.Span.Link(trace_id=b"x", span_id=SPAN), trace_pb2.Span.Link(trace_id=TRACE, span_id=SPAN)]
    assert one(span(links=links), encoding).links == (Link(TRACE, SPAN),)


@pytest.mark.parametrize("parent", [b"", bytes(8), b"abc"])
def test_an_invalid_parent_makes_a_root(encoding: Encoding, parent: bytes) -> None:
    """A span whose parent cannot be meant is kept as a root."""
    assert one(span(parent_span_id=parent), encoding).parent_id is None


def test_the_end_decides_the_duration(encoding: Encoding) -> None:
    """No end is an open span; an end before the start is no time at all."""
    assert one(span(end_time_unix_nano=0), encoding).duration is None
    assert one(span(end_time_unix_nano=TIME - 9), encoding).duration == 0
    assert one(span(end_time_unix_nano=TIME + 9), encoding).duration == 9


def test_unknown_kinds_and_codes_are_unspecified(encoding: Encoding) -> None:
    """Enums from a later protocol do not cost the span."""
    found = one(span(kind=77, status=trace_pb2.Status(code=9)), encoding)
    assert (found.span_kind, found.status) == (0, 0)


def test_the_scope_is_kept(encoding: Encoding) -> None:
    """The name is the record's scope; version and attributes ride along."""
    scope = InstrumentationScope(name="lib", version="1.2", attributes=attributes({"k": "v"}))
    found = one(span(attrs={"a": 1}), encoding, scope=scope)
    assert found.scope == "lib"
    assert found.attrs == {"a": 1, "otel.scope.version": "1.2", "otel.scope.k": "v"}


def test_the_step_leaves_the_attributes(encoding: Encoding) -> None:
    """The step is pulled into its own field."""
    found = one(span(attrs={"train.step": 41, "phase": "a"}), encoding)
    assert (found.step, found.axis, found.attrs) == (41, None, {"phase": "a"})


@pytest.mark.parametrize(
    ("fields", "warnings"),
    [
        ({"parent_span_id": b"short"}, {BAD_PARENT: 1}),
        ({"parent_span_id": bytes(8)}, {}),
        ({"end_time_unix_nano": TIME - 1}, {BAD_END: 1}),
        ({"end_time_unix_nano": 0}, {}),
        ({"links": [trace_pb2.Span.Link(trace_id=TRACE), trace_pb2.Span.Link(trace_id=TRACE, span_id=SPAN)]},
         {BAD_LINK: 1}),
    ],
)  # fmt: skip
def test_what_is_left_out_of_a_span_is_said(fields: Any, warnings: Any, encoding: Encoding) -> None:
    """The span is taken; what is only unset, or zeros for none, is nothing to be said."""
    found = decoded("traces", request("traces", [span(**fields)]), encoding)
    assert (len(records(found)), found.rejections.count, found.rejections.warnings) == (1, 0, warnings)
