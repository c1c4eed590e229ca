"""JSON as clients really spell it."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Event, Link, Log, Metric, Record, Span
from stepscope.wire.otlp.decode.decode_request import BAD_CONTEXT, BAD_PARENT, Decoded, decode
from stepscope.wire.otlp.decode.json_request import _BARE, PART_BYTES, _quoted, load_in_parts, parse
from stepscope.wire.otlp.decode.origin import BAD_LINK
from tests.wire.otlp.bodies import SPAN, TIME, TRACE, records

GOOD = {"traceId": TRACE.hex(), "spanId": SPAN.hex(), "startTimeUnixNano": str(TIME)}


def spans(*items: Any) -> Decoded:
    """Decode spans given as JSON objects."""
    return decode("traces", "json", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": items}]}]}).encode())


def points(field: str, *items: Any, **data: Any) -> Decoded:
    """Decode the points of one metric."""
    metric = {"name": "m", field: {"dataPoints": items, **data}}
    document = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    return decode("metrics", "json", json.dumps(document).encode())


def attribute(value: Any) -> Any:
    """What the value of an attribute becomes."""
    found = spans({**GOOD, "attributes": [{"key": "k", "value": value}]})
    (record,) = records(found)
    assert isinstance(record, Span)
    return record.attrs["k"]


def values(found: Decoded) -> list[Any]:
    """The values of all points."""
    return [value for record in records(found) if isinstance(record, Metric) for value in record.values.values()]


@pytest.mark.parametrize("spell", [str.lower, str.upper])
def test_ids_are_hex_in_either_case_everywhere(spell: Any) -> None:
    """Ids may be upper- or lower-case hex in spans, parents, links, logs and exemplars."""
    trace, span = spell(TRACE.hex()), spell(SPAN.hex())
    (found,) = records(
        spans(
            {
                **GOOD, "traceId": trace, "spanId": span, "parentSpanId": span,
                "links": [{"traceId": trace, "spanId": span}],
            }
        )
    )  # fmt: skip
    assert isinstance(found, Span)
    assert (found.trace_id, found.span_id, found.parent_id) == (TRACE, SPAN, SPAN)
    assert found.links == (Link(TRACE, SPAN),)
    log = {"timeUnixNano": 1, "traceId": trace, "spanId": span}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    (line,) = records(decode("logs", "json", json.dumps(document).encode()))
    assert isinstance(line, Log)
    assert (line.trace_id, line.span_id) == (TRACE, SPAN)
    exemplar = {"asDouble": 1, "traceId": trace, "spanId": span}
    (point,) = records(points("gauge", {"timeUnixNano": 1, "asInt": 1, "exemplars": [exemplar]}))
    assert isinstance(point, Metric)
    (kept,) = point.attrs["otel.exemplars"]
    assert (kept["trace_id"], kept["span_id"]) == (TRACE.hex(), SPAN.hex())


def test_base64_ids_are_refused_with_a_hint() -> None:
    """Stock protobuf JSON writes ids in base64; the message says what is wanted."""
    found = spans({**GOOD, "traceId": "AQIDBAUGBwgJCgsMDQ4PEA=="})
    assert records(found) == []
    assert "32 hex digits" in found.rejections.message


@pytest.mark.parametrize("time", [TIME, str(TIME), float(2**60)])
def test_64_bit_numbers_come_as_numbers_or_strings(time: Any) -> None:
    """Times, counts and integers alike."""
    (found,) = records(spans({**GOOD, "startTimeUnixNano": time, "endTimeUnixNano": time}))
    assert found.time == int(time)
    assert values(points("gauge", {"timeUnixNano": time, "asInt": "7"}, {"timeUnixNano": time, "asInt": 7})) == [7, 7]
    (histogram,) = values(
        points("histogram", {"timeUnixNano": time, "count": "3", "bucketCounts": ["1", 2], "explicitBounds": ["1.5"]},
               aggregationTemporality=2)
    )  # fmt: skip
    assert (histogram.count, histogram.counts, histogram.bounds) == (3, (1, 2), (1.5,))


@pytest.mark.parametrize(
    ("spelt", "value"), [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), ("2.5", 2.5), (3, 3.0)]
)
def test_doubles_that_json_lacks_come_as_strings(spelt: Any, value: float) -> None:
    """NaN and the infinities have names."""
    (found,) = values(points("gauge", {"timeUnixNano": 1, "asDouble": spelt}))
    assert repr(found) == repr(value)


def test_bare_nan_is_tolerated() -> None:
    """Python's json writes NaN bare: no JSON, but a loss nobody wants to lose."""
    body = json.dumps(
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [
            {"name": "loss", "gauge": {"dataPoints": [
                {"timeUnixNano": 1, "asDouble": math.nan}, {"timeUnixNano": 1, "asDouble": -math.inf}
            ]}}
        ]}]}]}
    ).encode()  # fmt: skip
    assert b"NaN" in body
    assert list(map(repr, values(decode("metrics", "json", body)))) == ["nan", "-inf"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({}, None),
        (None, None),
        ({"stringValue": ""}, ""),
        ({"stringValue": "é"}, "é"),
        ({"boolValue": False}, False),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 0}, 0),
        ({"doubleValue": 0}, 0.0),
        ({"bytesValue": "AP8="}, b"\x00\xff"),
        ({"bytesValue": "AP8"}, b"\x00\xff"),
        ({"bytesValue": "_-8="}, b"\xff\xef"),
        ({"arrayValue": {}}, []),
        ({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "a"}, {}]}}, [1, "a", None]),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}),
        ({"kvlistValue": [{"key": "a", "value": {"intValue": "0"}}]}, {"a": 0}),
        ({"stringValueStrindex": 5}, None),
        ({"fromTheFuture": 5}, None),
    ],
)
def test_every_kind_of_attribute(value: Any, read: Any) -> None:
    """Empty, bytes, mixed arrays, maps, and what only profiles or later versions know."""
    found = attribute(value)
    assert found == read
    assert type(found) is type(read)


def test_unknown_fields_and_nulls_are_ignored() -> None:
    """Unknown fields and nulls are ignored at every level."""
    item = {**GOOD, "kind": None, "status": None, "events": None, "attributes": None, "new": {"x": [1]}}
    scope = {"scope": None, "schemaUrl": None, "spans": [item], "deprecatedSpans": 1}
    part = {"resource": {"attributes": [], "entityRefs": [1]}, "scopeSpans": [scope], "more": None}
    found = decode("traces", "json", json.dumps({"resourceSpans": [part], "extra": 1}).encode())
    assert len(records(found)) == 1


def snake(node: Any) -> Any:
    """The same document in snake_case."""
    if isinstance(node, list):
        return [snake(inner) for inner in node]
    if isinstance(node, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(node[key]) for key in node}
    return node


def test_snake_case_is_tolerated() -> None:
    """Field names of the .proto files are read too, wherever they start."""
    item = {
        **GOOD, "endTimeUnixNano": TIME + 1, "parentSpanId": SPAN.hex(),
        "attributes": [{"key": "snake_key", "value": {"stringValue": "some_value"}}],
    }  # fmt: skip
    camel = {"resourceSpans": [{"scopeSpans": [{"spans": [item]}]}]}
    half = {"resourceSpans": [{"scopeSpans": [{"spans": [snake(item)]}]}]}
    found: list[list[Record]] = [
        records(decode("traces", "json", json.dumps(document).encode())) for document in (camel, snake(camel), half)
    ]
    assert found[0] == found[1] == found[2]
    assert isinstance(found[0][0], Span)
    assert found[0][0].attrs == {"snake_key": "some_value"}


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5}, {"kind": "SPAN_KIND_SERVER"}, {"kind": 1.5}, {"startTimeUnixNano": "soon"},
        {"startTimeUnixNano": "9" * 30}, {"attributes": {"a": 1}}, {"attributes": [5]},
        {"attributes": [{"key": "k", "value": {"intValue": "9223372036854775808"}}]},
        {"attributes": [{"key": "k", "value": {"boolValue": "true"}}]},
        {"attributes": [{"key": "k", "value": {"bytesValue": "!"}}]},
        {"attributes": [{"key": 7, "value": {}}]}, {"events": [7]}, {"links": {}}, {"status": 7},
    ],
)  # fmt: skip
def test_a_malformed_item_is_refused_alone(change: Any) -> None:
    """Wrong types cost that item, with a reason, and no other."""
    found = spans(GOOD, {**GOOD, **change}, GOOD)
    assert len(records(found)) == 2
    assert found.rejections.reasons == {"it is malformed": 1}


def test_nesting_has_a_limit() -> None:
    """Attributes nested beyond reason cost their item."""
    value: Any = {"stringValue": "deep"}
    for _ in range(33):
        value = {"arrayValue": {"values": [value]}}
    found = spans({**GOOD, "attributes": [{"key": "k", "value": value}]}, GOOD)
    assert len(records(found)) == 1
    assert found.rejections.count == 1


def test_a_malformed_point_is_refused_alone() -> None:
    """A malformed point does not affect its metric and the other points."""
    found = points("gauge", {"timeUnixNano": 1, "asDouble": 1}, {"timeUnixNano": 1, "asDouble": "x"}, 7)
    assert values(found) == [1.0]
    assert found.rejections.count == 2


def test_negative_counts_are_malformed() -> None:
    """A count cannot be negative."""
    found = points("histogram", {"timeUnixNano": 1, "count": "-1"}, aggregationTemporality=1)
    assert found.rejections.reasons == {"it is malformed": 1}


def test_the_shape_of_events_in_opentelemetrys_examples() -> None:
    """An event named by attribute, whose body is a bare list of key-values."""
    body = {"kvlistValue": [{"key": "type", "value": {"intValue": "0"}}]}
    name = {"key": "event.name", "value": {"stringValue": "browser.page_view"}}
    log = {"observedTimeUnixNano": "5", "severityNumber": 9, "attributes": [name], "body": body}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    (found,) = records(decode("logs", "json", json.dumps(document).encode()))
    assert found == Event(5, None, None, None, None, 9, "browser.page_view", {}, {"type": 0}, 5)


@pytest.mark.parametrize(
    ("name", "kept"), [("bad\ud800", "bad\ufffd"), ("\udc00\ud83d", "\ufffd\ufffd"), ("\ud83d\ude00", "\U0001f600")]
)
def test_half_a_surrogate_pair_costs_one_letter(name: str, kept: str) -> None:
    """As Python's json writes it: the item is kept with U+FFFD, and its neighbours as they are."""
    found = spans({**GOOD, "name": "good"}, {**GOOD, "name": name, "attributes": [{"key": name, "value": {}}]})
    assert [record.name for record in records(found) if isinstance(record, Span)] == ["good", kept]
    assert [list(record.attrs) for record in records(found)] == [[], [kept]]
    assert found.rejections.count == 0


def test_ids_that_are_no_hex_are_named_and_the_rest_is_kept() -> None:
    """Invalid ids of links, parents and logs are reported; those of exemplars are left out."""
    found = spans({**GOOD, "name": "s", "parentSpanId": "zz", "links": [{"traceId": TRACE.hex(), "spanId": "zz"}]})
    (span,) = records(found)
    assert isinstance(span, Span)
    assert (span.parent_id, span.links, found.rejections.count) == (None, (), 0)
    assert found.rejections.warnings == {BAD_LINK: 1, BAD_PARENT: 1}
    log = {"timeUnixNano": str(TIME), "traceId": "zz"}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    found = decode("logs", "json", json.dumps(document).encode())
    assert (len(records(found)), found.rejections.warnings) == (1, {BAD_CONTEXT: 1})
    exemplars = [{"asDouble": 1, "traceId": "zz", "spanId": "3f" * 8}]
    (point,) = records(points("gauge", {"timeUnixNano": str(TIME), "asDouble": 1, "exemplars": exemplars}))
    (exemplar,) = point.attrs[ATTR_EXEMPLARS]
    assert (exemplar["trace_id"], exemplar["span_id"]) == ("", "3f" * 8)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(_VALUES, st.integers(1, 200))
def test_json_in_parts_is_the_same_document(value: Any, most: int) -> None:
    """However small the parts, texts with braces and commas, NaN and half surrogate pairs included."""
    data = json.dumps({"a": [value, "NaN", '},{"\\"', "\\ud800"], "NaN": "\ud800\U0001f600\udc00"}).encode()
    mended = _BARE.sub(_quoted, data)
    assert repr(load_in_parts(mended, most)) == repr(msgspec.json.decode(mended))
    assert parse(mended)["a"][2:] == ['},{"\\"', "\\ud800"]
    assert parse(mended)["NaN"] == parse(data)["NaN"] == "\ufffd\U0001f600\ufffd"


@pytest.mark.parametrize("odd", ['"v"', "NaN", '"\\ud800"', "[" + "1," * 50_000 + "1]", '"' + "x" * 300_000 + '"'])
def test_no_call_parses_a_large_body_at_once(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of megabytes is parsed in short calls, between which other threads run."""
    sizes = []

    def decode(part: Any) -> Any:
        sizes.append(memoryview(part).nbytes)
        return msgspec.json.decode(part)

    monkeypatch.setattr("stepscope.wire.otlp.decode.json_request._decode", decode)
    span = f'{{"name": "x", "attributes": [{{"key": "k", "value": {odd}}}, 1, 2, 3]}}'
    many = ",".join([span] + ['{"name": "y", "attributes": []}'] * 60_000)
    found = parse(f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{many}]}}]}}]}}'.encode())
    spans = found["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (len(spans), spans[0]["name"], spans[-1]) == (60_001, "x", {"name": "y", "attributes": []})
    assert max(sizes) <= max(4 * PART_BYTES, len(odd) + 100)
    assert len(sizes) > 5
