"""OTLP's JSON in the specification's spelling."""

import json
import math

from stepscope.model.records import Histogram, Instrument, Link, Metric, Record, Span, SpanEvent
from stepscope.model.writer import Writer
from stepscope.wire.otlp.encode.request import encode
from stepscope.wire.otlp.encode.to_json import to_json
from tests.wire.otlp.bodies import SPAN, TIME, TRACE


def spelt(*records: Record) -> dict[str, object]:
    """The item of a request that holds these records."""
    (request,) = encode([(Writer(id="w", run="R", project="P"), records)]).requests
    document = json.loads(to_json(request.signal, request.body))
    ((_, resources),) = document.items()
    (scopes,) = [value for key, value in resources[0].items() if key.startswith("scope")]
    (items,) = scopes[0].values()
    return items[0]


def test_a_span() -> None:
    """lowerCamelCase, hex ids, integer enums, 64-bit numbers as strings, bytes in base64."""
    link = Link(TRACE, SPAN, {"a": b"\x00\xff"})
    event = SpanEvent(TIME, "e", {"big": 2**60, "no": None, "f": math.nan})
    found = spelt(Span(TIME, 5, 7, None, TRACE, SPAN, SPAN, "s", 3, 2, "bad", {"k": [True, "x"]}, (event,), (link,)))
    assert found == {
        "traceId": TRACE.hex(),
        "spanId": SPAN.hex(),
        "parentSpanId": SPAN.hex(),
        "name": "s",
        "kind": 3,
        "startTimeUnixNano": str(TIME),
        "endTimeUnixNano": str(TIME + 5),
        "attributes": [
            {"key": "train.step", "value": {"intValue": "7"}},
            {"key": "k", "value": {"arrayValue": {"values": [{"boolValue": True}, {"stringValue": "x"}]}}},
        ],
        "events": [
            {
                "timeUnixNano": str(TIME),
                "name": "e",
                "attributes": [
                    {"key": "big", "value": {"intValue": str(2**60)}},
                    {"key": "no", "value": {}},
                    {"key": "f", "value": {"doubleValue": "NaN"}},
                ],
            }
        ],
        "links": [
            {
                "traceId": TRACE.hex(),
                "spanId": SPAN.hex(),
                "attributes": [{"key": "a", "value": {"bytesValue": "AP8="}}],
            }
        ],
        "status": {"message": "bad", "code": 2},
    }


def test_a_histogram() -> None:
    """Counts are strings, bounds are numbers."""
    value = Histogram(3, math.inf, None, None, (1.5,), (1, 2))
    found = spelt(Metric(TIME, None, None, None, {"h": value}, {}, Instrument("histogram", cumulative=True, start=5)))
    assert found == {
        "name": "h",
        "histogram": {
            "dataPoints": [
                {
                    "startTimeUnixNano": "5",
                    "timeUnixNano": str(TIME),
                    "count": "3",
                    "sum": "Infinity",
                    "bucketCounts": ["1", "2"],
                    "explicitBounds": [1.5],
                }
            ],
            "aggregationTemporality": 2,
        },
    }
