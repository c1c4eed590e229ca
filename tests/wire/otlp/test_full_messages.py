"""Requests in which every field is set come back from our records field by field."""

import pytest

from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.decode.origin import SCOPE_CLASH
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.encode.to_json import to_json
from stepscope.wire.otlp.names import Encoding, Signal
from tests.wire.otlp import full_messages


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_every_field_comes_back(signal: Signal, encoding: Encoding) -> None:
    """Flags, dropped counts, trace state, schema URLs, scopes and times return to their fields."""
    sent = getattr(full_messages, signal)()
    body = sent.SerializeToString()
    decoded = decode(signal, encoding, body if encoding == "protobuf" else to_json(signal, body))
    assert not decoded.rejections.message
    (request,) = encode([(group.origin.writer(), group.records) for group in decoded.groups]).requests
    again = type(sent).FromString(request.body)
    full_messages.compare(sent, again)


def test_a_scope_attribute_that_clashes_with_a_field_is_counted() -> None:
    """A scope attribute that clashes with a field is left out, and the reply reports it."""
    sent = full_messages.traces()
    sent.resource_spans[0].scope_spans[0].scope.attributes.extend(full_messages.pairs(version="9"))
    decoded = decode("traces", "protobuf", sent.SerializeToString())
    assert decoded.rejections.warnings == {SCOPE_CLASH: 1}
    assert decoded.groups[0].records[0].attrs["otel.scope.version"] == "1.2"
