"""Requests of too many messages."""

from typing import Any

import pytest

from stepscope.wire.otlp.decode import protobuf_request, request_limits
from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.names import SIGNALS, Signal
from stepscope.wire.otlp.protobuf_writing import delimited, varint
from stepscope.wire.otlp.replies import BadRequest
from tests.wire.otlp.bodies import ENCODINGS, decoded, gauge, log, records, request, span

ITEMS = {"traces": span, "metrics": gauge, "logs": log}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight items are many, and so are four resources and scopes, or twenty attributes."""
    monkeypatch.setattr(request_limits, "MOST", 8)
    monkeypatch.setattr(request_limits, "MAX_GROUPS", 4)
    monkeypatch.setattr(request_limits, "MAX_ATTRIBUTES", 20)
    monkeypatch.setattr(protobuf_request, "_SMALLEST", 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("signal", SIGNALS)
def test_bound(signal: Signal, encoding: Any) -> None:
    """As many as the bound are taken; one more, and the request is refused as a whole."""
    most = 4 if signal == "metrics" else 8
    items = [ITEMS[signal]() for _ in range(most)]
    assert len(records(decoded(signal, request(signal, items), encoding))) == most
    with pytest.raises(BadRequest, match="smaller batches"):
        decoded(signal, request(signal, [*items, ITEMS[signal]()]), encoding)


def field(number: int, *inside: bytes) -> bytes:
    """A message in a field of another."""
    return delimited(varint(number << 3 | 2), b"".join(inside))


EMPTY = b"\x0a\x00"
MANY: dict[str, tuple[Signal, bytes]] = {
    "resources": ("traces", EMPTY * 5),
    "scopes": ("traces", field(1, b"\x12\x00" * 5)),
    "of a resource": ("logs", field(1, field(1, EMPTY * 21))),
    "of a scope": ("logs", field(1, field(2, field(1, field(3) * 21)))),
    "of a log": ("logs", field(1, field(2, field(2, field(6) * 21)))),
    "in a body": ("logs", field(1, field(2, field(2, field(5, field(5, EMPTY * 21)))))),
    "in a list in a dict": ("logs", field(1, field(2, field(2, field(6, field(2, field(6, field(1) * 21))))))),
    "of a span": ("traces", field(1, field(2, field(2, field(9) * 21)))),
    "events": ("traces", field(1, field(2, field(2, field(11) * 9)))),
    "of an event": ("traces", field(1, field(2, field(2, field(11, field(3) * 21))))),
    "of a link": ("traces", field(1, field(2, field(2, field(13, field(4) * 21))))),
    "points": ("metrics", field(1, field(2, field(2, field(5, EMPTY * 9))))),
    "of a point": ("metrics", field(1, field(2, field(2, field(7, field(1, field(7) * 21)))))),
    "exemplars": ("metrics", field(1, field(2, field(2, field(9, field(1, field(8) * 9)))))),
    "fields that nobody knows": ("logs", field(2000, b"aaaa") * 9),
    "quantiles": ("metrics", field(1, field(2, field(2, field(11, field(1, field(6) * 9)))))),
}


@pytest.mark.parametrize(("signal", "body"), MANY.values(), ids=list(MANY))
def test_empty_messages(signal: Signal, body: bytes) -> None:
    """Everything that becomes an object counts, wherever it lies: nothing inside it is needed to fill a memory."""
    with pytest.raises(BadRequest, match="smaller batches"):
        decode(signal, "protobuf", body)


NUMBERS: dict[str, bytes] = {
    "varints": b"\xf8\x07\x01" * 30,
    "of 64 bits": field(1, b"\x19" + bytes(8) + b"\x11" + bytes(8)) * 2 + field(1, (b"\x19" + bytes(8)) * 30),
    "of 32 bits": field(1, field(2, field(2, (b"\x2d" + bytes(4)) * 30))),
}


@pytest.mark.parametrize("body", NUMBERS.values(), ids=list(NUMBERS))
def test_numbers_without_end(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in a message that no message needs count as items: millions of them would take seconds to walk."""
    monkeypatch.setattr(protobuf_request, "_FEW_NUMBERS", 5)
    with pytest.raises(BadRequest, match="smaller batches"):
        decode("traces", "protobuf", body)


def test_many_values_of_json() -> None:
    """A JSON text of too many values is refused before it is parsed."""
    request_limits.bound_values(b"[" + b"1," * 9 + b"1]", 10)
    with pytest.raises(BadRequest, match="send smaller requests"):
        request_limits.bound_values(b"[" + b"{}," * 9 + b"{}]", 10)


def test_broken() -> None:
    """What is no protobuf is refused for that."""
    with pytest.raises(BadRequest, match="ExportTraceServiceRequest"):
        decode("traces", "protobuf", b"\x0a\x05\x12")
