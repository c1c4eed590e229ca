"""Requests of too many messages."""

from typing import Any

import pytest

from stepscope.wire.otlp.decode import bulk
from stepscope.wire.otlp.decode.request import decode
from stepscope.wire.otlp.names import SIGNALS, Signal
from stepscope.wire.otlp.refusals import BadRequest
from tests.wire.otlp.bodies import ENCODINGS, decoded, gauge, log, records, request, span

ITEMS = {"traces": span, "metrics": gauge, "logs": log}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten messages are too many: a resource, a scope, and eight spans, or four metrics with a point each."""
    monkeypatch.setattr(bulk, "MOST", 10)
    monkeypatch.setattr(bulk, "_HARMLESS", 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("signal", SIGNALS)
def test_bound(signal: Signal, encoding: Any) -> None:
    """As many as the bound are taken; one more, and the request is refused as a whole."""
    most = 4 if signal == "metrics" else 8
    items = [ITEMS[signal]() for _ in range(most)]
    assert len(records(decoded(signal, request(signal, items), encoding))) == most
    with pytest.raises(BadRequest, match="smaller batches"):
        decoded(signal, request(signal, [*items, ITEMS[signal]()]), encoding)


@pytest.mark.parametrize("body", [b"\x0a\x00" * 11, b"\x0a\x18" + b"\x12\x00" * 12], ids=["resources", "scopes"])
def test_empty_messages(body: bytes) -> None:
    """Resources and scopes count too: nothing inside them is needed to fill a memory."""
    with pytest.raises(BadRequest, match="smaller batches"):
        decode("traces", "protobuf", body)


def test_broken() -> None:
    """What is no protobuf is refused for that."""
    with pytest.raises(BadRequest, match="ExportTraceServiceRequest"):
        decode("traces", "protobuf", b"\x0a\x05\x12")
