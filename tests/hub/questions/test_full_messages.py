"""What OTLP clients sent, with every field set, is given back by the API and by every export."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.hub.questions.traces import trace_files
from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.encode.encode_request import encode
from tests.hub.questions.conftest import Get
from tests.wire.otlp import full_messages
from tests.wire.otlp.full_messages import EXACT, START, TRACE

Ask = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def sent(hub: Hub) -> None:
    """Store the three requests, as their decoded batches."""
    for seq, signal in enumerate(("traces", "metrics", "logs")):
        body = getattr(full_messages, signal)().SerializeToString()
        for origin, records in decode(signal, "protobuf", body).groups:
            hub.store.write(Batch(origin.writer(START), seq, records))


def exported(ask: Ask, what: str, format: str = "jsonl", **params: Any) -> Any:
    """A copy of the run."""
    answer = ask("GET", "/api/runs/full/export", params={"what": what, "format": format, **params})
    assert answer.status_code == 200, answer.text
    return answer


def lines(ask: Ask, what: str, **params: Any) -> list[dict[str, Any]]:
    """A copy of the run as lines of JSON, read."""
    return [json.loads(line) for line in exported(ask, what, **params).text.splitlines()]


def test_an_exported_trace_is_what_was_sent(ask: Ask) -> None:
    """Resource, scope, flags, dropped counts and trace state come back when the file is imported."""
    file = ask("GET", "/api/spans/export", params={"trace_id": TRACE.hex()}).content
    _, found = trace_files.read_file(file, "", "imports", START)
    assert not found.rejected
    (request,) = encode([(group.origin.writer(), group.records) for group in found.groups]).requests
    sent = full_messages.traces()
    again = type(sent).FromString(request.body)
    again.resource_spans.sort(key=lambda part: part.scope_spans[0].spans[0].name)
    full_messages.compare(sent, again)


def test_resources_that_differ_in_any_attribute_are_two_processes() -> None:
    """Each distinct resource is a process with its own attributes."""
    sent = full_messages.traces()
    for part, zone in zip(sent.resource_spans, ("a", "b"), strict=True):
        part.resource.CopyFrom(full_messages.resource("same"))
        part.resource.attributes[-1].value.string_value = zone
    first, second = decode("traces", "protobuf", sent.SerializeToString()).groups
    assert (first.origin.resource["zone"], second.origin.resource["zone"]) == ("a", "b")
    assert first.origin.writer().id != second.origin.writer().id


def test_one_name_in_two_scopes_is_two_lines(get: Get) -> None:
    """In series and histograms; each line names its scope, and one scope can be asked for."""
    found = get("/api/runs/full/series", key="bytes", x="time")["series"]
    assert [(line["scope"], line["columns"]["value"]) for line in found] == [("lib", [EXACT]), ("other", [EXACT - 1])]
    (one,) = get("/api/runs/full/series", key="bytes", x="time", scope="other")["series"]
    assert (one["scope"], one["total"]) == ("other", 1)
    spreads = get("/api/runs/full/histograms", key="latency", x="time")["series"]
    assert [each["scope"] for each in spreads] == ["lib", "other"]
    keys = {key["key"]: key for key in get("/api/runs/full/keys")["keys"]}
    assert keys["bytes"]["scopes"] == ["lib", "other"]


def test_keys_without_finite_values_have_no_extremes(get: Get) -> None:
    """A metric that was only NaN has no least value; a histogram without a sum has no mean."""
    keys = {key["key"]: key for key in get("/api/runs/full/keys")["keys"]}
    broken, latency = keys["broken"], keys["latency"]
    assert (broken["min"], broken["max"], broken["last"], broken["flags"]) == (None, None, "NaN", 1)
    assert (latency["min"], latency["max"], latency["last"], latency["points"]) == (None, None, None, 2)


def test_integers_beyond_doubles_keep_every_digit(ask: Ask, get: Get) -> None:
    """Keys, series and exports have all digits of large integers."""
    (key,) = [key for key in get("/api/runs/full/keys")["keys"] if key["key"] == "bytes"]
    assert (key["min"], key["max"]) == (EXACT - 1, EXACT)
    assert str(EXACT) in ask("GET", "/api/runs/full/series", params={"key": "bytes", "x": "time"}).text
    points = lines(ask, "metrics", key="bytes")
    assert [(row["scope"], row["value"]) for row in points] == [("lib", EXACT), ("other", EXACT - 1)]
    rows = list(csv.DictReader(io.StringIO(exported(ask, "metrics", "csv", key="bytes").text)))
    assert [row["value"] for row in rows] == [str(EXACT), str(EXACT - 1)]
    arrow = pytest.importorskip("pyarrow")
    table = arrow.ipc.open_stream(exported(ask, "metrics", "arrow", key="bytes").content).read_all()
    assert table["integer"].to_pylist() == [EXACT, EXACT - 1]


def test_thinned_lines_keep_every_digit_too(ask: Ask, get: Get, hub: Hub) -> None:
    """The least, greatest and last value of each bucket."""
    points = [Metric(START + step, step, None, None, {"n": 2**62 + step}) for step in range(100)]
    hub.store.write(Batch(Writer(id="large", run="large", project="p"), 0, points))
    columns = get("/api/runs/large/series", key="n", points=10)["series"][0]["columns"]
    assert columns["min"] == [2**62 + step for step in range(0, 100, 10)]
    assert columns["max"] == columns["last"] == [2**62 + step for step in range(9, 100, 10)]
    (value,) = get("/api/runs/large/steps/7")["metrics"][0]["values"]
    assert value["value"] == 2**62 + 7
    (key,) = get("/api/runs/large/keys")["keys"]
    assert (key["min"], key["max"], key["last"]) == (2**62, 2**62 + 99, 2**62 + 99)


def test_histograms_are_exported(ask: Ask) -> None:
    """Histograms are exported in every format, with scope and all fields."""
    rows = lines(ask, "histograms")
    assert [(row["key"], row["scope"], row["type"]) for row in rows] == [
        ("latency", "lib", "histogram"),
        ("latency", "other", "histogram"),
    ]
    first = rows[0]
    assert (first["count"], first["sum"], first["min"], first["max"]) == (3, None, 0.1, 9.0)
    assert (first["bounds"], first["counts"], first["start"]) == ([0.5], [1, 2], "1700000000.000000000")
    assert lines(ask, "histograms", key="bytes") == []
    cells = list(csv.DictReader(io.StringIO(exported(ask, "histograms", "csv").text)))
    assert (cells[0]["bounds"], cells[0]["counts"], cells[0]["sum"]) == ("[0.5]", "[1, 2]", "")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    streamed = arrow.ipc.open_stream(exported(ask, "histograms", "arrow").content).read_all()
    assert parquet.read_table(io.BytesIO(exported(ask, "histograms", "parquet").content)).equals(streamed)
    assert (streamed["counts"].to_pylist(), streamed["sum"].to_pylist()) == ([[1, 2], [1, 2]], [None, None])


def test_exemplars_are_exported(ask: Ask) -> None:
    """With the value to the last digit, the span and what was filtered from the point."""
    rows = lines(ask, "exemplars", rank=0)
    assert [(row["key"], row["scope"], row["value"]) for row in rows] == [
        ("bytes", "lib", EXACT),
        ("bytes", "other", EXACT),
    ]
    assert (rows[0]["trace_id"], rows[0]["attrs"]) == (TRACE.hex(), {"user": "u"})
    arrow = pytest.importorskip("pyarrow")
    table = arrow.ipc.open_stream(exported(ask, "exemplars", "arrow").content).read_all()
    assert table["integer"].to_pylist() == [EXACT, EXACT]


def test_logs_keep_scope_flags_and_observed_time(ask: Ask, get: Get) -> None:
    """The export and the API return scope, flags and observed time of logs and events."""
    rows = {row["name"] or row["body"]: row for row in lines(ask, "logs")}
    assert {(row["scope"], row["attrs"]["otel.scope.version"]) for row in rows.values()} == {("lib", "1.2")}
    assert [rows[name]["flags"] for name in ("hot", "seen", "train.preempted")] == [1, 0, 1]
    assert rows["hot"]["observed"] == pytest.approx((START + 99) / 1e9)
    shown = get("/api/logs", run="full")["logs"]
    assert {line["scope"] for line in shown} == {"lib"}
