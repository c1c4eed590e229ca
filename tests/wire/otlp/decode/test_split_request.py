"""Large requests split into small ones: the same spans with the same resources and scopes."""

import json
from typing import Any

import pytest

from stepscope.model.records import Record
from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.decode.json_request import split_spans


def span(number: int) -> dict[str, Any]:
    """A span in OTLP's JSON."""
    ids = {"traceId": f"{number // 3 + 1:032x}", "spanId": f"{number + 1:016x}"}
    times = {"startTimeUnixNano": str(10**18 + number), "endTimeUnixNano": str(10**18 + number + 5)}
    return {**ids, **times, "name": f"n{number}", "attributes": [{"key": "k", "value": {"intValue": str(number)}}]}


def resource(name: str, *scopes: dict[str, Any]) -> dict[str, Any]:
    """The spans of one process."""
    attributes = [{"key": "service.name", "value": {"stringValue": name}}]
    return {"schemaUrl": "https://s/1", "scopeSpans": scopes, "resource": {"attributes": attributes}}


DOCUMENT = {
    "resourceSpans": [
        resource(
            "a", {"scope": {"name": "x", "version": "1"}, "spans": [*map(span, range(5))], "schemaUrl": "https://s/2"}
        ),
        resource("b", {"spans": [span(7)]}, {"scope": {"name": "y"}, "spans": []}),
    ]
}


def found(*parts: bytes) -> dict[str, list[Record]]:
    """The records of some requests by their origin."""
    made: dict[str, list[Record]] = {}
    for part in parts:
        for group in decode("traces", "json", part).groups:
            made.setdefault(group.origin.key, []).extend(group.records)
    return made


def test_parts_hold_the_same_spans() -> None:
    """No part has more spans than asked for, and all together are the request."""
    data = json.dumps(DOCUMENT).encode()
    parts = list(split_spans(data, 2))
    assert len(parts) == 4
    assert found(*parts) == found(data)


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"resourceSpans": 3}', b'{"resourceSpans": [{}]}', b'{"resource_spans": []}', b"NaN"]
)
def test_what_cannot_be_split_comes_back_whole(data: bytes) -> None:
    """Then the decoder says what is wrong with it."""
    assert list(split_spans(data, 2)) == [data]
