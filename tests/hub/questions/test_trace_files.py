"""Traces over HTTP: columns for drawing, facets, files out in two formats and in again through the intake."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from stepscope.hub.questions.traces import trace_files
from stepscope.hub.questions.traces.stored_spans import SpanRange, read_range
from stepscope.hub.questions.traces.trace_files import known_spans, read_file
from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.wire.otlp.decode.decode_request import decode
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import FAILED, SPIKE, START, trace_of

Ask = Callable[..., Any]


def test_columns_of_a_trace(get: Get) -> None:
    """Spans in the order they began, with names, lanes and traces given once; what is wrong has its status."""
    found = get("/api/spans/lanes", trace_id=trace_of(FAILED, 0).hex())
    columns = found["columns"]
    assert [found["names"][each] for each in columns["name"]] == ["train.step", "train.forward", "train.backward"]
    assert found["lanes"] == [{"run": "big", "rank": 0, "thread": ""}]
    assert columns["parent_id"] == ["", columns["span_id"][0], columns["span_id"][0]]
    assert (columns["start"], columns["duration"]) == ([0.0, 10.0, 120.0], [300.0, 100.0, 150.0])
    assert (columns["status"], columns["step"]) == ([0, 0, 2], [FAILED] * 3)
    assert (found["duration_ms"], found["more"], found["open"]) == (300.0, False, 0)


def test_columns_of_steps(get: Get) -> None:
    """Some steps of a run on all ranks, cut where the limit says."""
    found = get("/api/spans/lanes", run="big", step=SPIKE, last=SPIKE + 1)
    assert [lane["rank"] for lane in found["lanes"]] == [0, 1]
    assert len(found["columns"]["span_id"]) == 12
    cut = get("/api/spans/lanes", run="big", step=SPIKE, last=SPIKE + 1, limit=5)
    assert (len(cut["columns"]["span_id"]), cut["more"]) == (5, True)


def test_what_is_not_there(get: Get) -> None:
    """No trace and no step is a 404, no choice at all a 400."""
    get("/api/spans/lanes", expect=404, trace_id="ab" * 16)
    get("/api/spans/lanes", expect=404, run="big", step=10**6)
    get("/api/spans/lanes", expect=404, run="none", step=1)
    get("/api/spans/export", expect=404, trace_id="ab" * 16)
    assert "run and a step" in get("/api/spans/lanes", expect=400)["error"]["message"]


def test_one_span(get: Get) -> None:
    """A span is found by its id."""
    id = get("/api/spans/lanes", trace_id=trace_of(3, 0).hex())["columns"]["span_id"][1]
    (span,) = get("/api/spans", trace_id=trace_of(3, 0).hex(), span_id=id)["spans"]
    assert (span["name"], span["span_id"]) == ("train.forward", id)


def test_facets(get: Get) -> None:
    """Names with their counts, failures and durations."""
    found = get("/api/spans/facets", run="big")
    by_name = {each["name"]: each for each in found["names"]}
    assert by_name["train.backward"]["errors"] == 1
    assert by_name["train.step"]["count"] == 240
    assert (by_name["train.step"]["median_ms"], by_name["train.step"]["longest_ms"]) == (300.0, 900.0)


def test_export_as_otlp(get: Get) -> None:
    """The file is a request that any OTLP server takes, with run, rank and step."""
    body = json.dumps(get("/api/spans/export", run="big", step=FAILED)).encode()
    found = decode("traces", "json", body)
    assert [(group.origin.run, group.origin.rank, len(group.records)) for group in found.groups] == [
        ("big", 0, 3),
        ("big", 1, 3),
    ]
    assert {record.step for group in found.groups for record in group.records} == {FAILED}


def test_export_as_chrome(ask: Ask) -> None:
    """The file has an event for each span, and its name says what it is."""
    answer = ask("GET", "/api/spans/export", params={"run": "big", "step": FAILED, "format": "chrome"})
    assert 'filename="big-step-100.chrome.json"' in answer.headers["content-disposition"]
    events = answer.json()["traceEvents"]
    assert sorted(event["name"] for event in events if event["ph"] == "X") == sorted(
        ["train.step", "train.forward", "train.backward"] * 2
    )
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "big rank 0",
        "big rank 1",
    }


CHROME = {
    "traceEvents": [{"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 5, "dur": 10}, {"ph": "X", "name": "?"}]
}


def counted(hub: Hub, outcome: str) -> int:
    """What the hub counted of imports."""
    return hub.counters.total(outcome, "import")


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress])
def test_import_chrome(ask: Ask, hub: Hub, pack: Callable[[bytes], bytes]) -> None:
    """A file is taken through the intake, so that it is journaled and counted; bad events are refused and counted."""
    written, rejected, groups = counted(hub, "written"), counted(hub, "rejected"), hub.intake.groups
    answer = ask("POST", "/api/spans/import?run=mine&project=p", content=pack(json.dumps(CHROME).encode()))
    found = answer.json()
    assert answer.status_code == 200, answer.text
    assert (found["format"], found["runs"], found["spans"], found["points"]) == ("chrome", ["mine"], 1, 0)
    assert sum(found["rejected"].values()) == 1
    assert counted(hub, "written") == written + 1
    assert counted(hub, "rejected") == rejected + 1
    assert hub.intake.groups == groups + 1


@pytest.mark.parametrize("format", ["otlp", "chrome"])
def test_import_of_what_is_there(ask: Ask, get: Get, hub: Hub, format: str) -> None:
    """A span comes into the store once: what the hub itself exported is counted, found with all ranks, and left."""
    before, written = get("/api/runs/big")["counts"], counted(hub, "written")
    body = json.dumps(get("/api/spans/export", run="big", step=5, last=6, format=format)).encode()
    for data in (body, gzip.compress(body)):
        found = ask("POST", "/api/spans/import?run=big-step-5", content=data).json()
        assert (found["format"], found["spans"], found["already"]) == (format, 0, 12)
        assert (found["runs"], found["steps"]) == (["big"], [{"run": "big", "first_step": 5, "last_step": 6}])
        assert set(found["traces"]) == {trace_of(step, rank).hex() for step in (5, 6) for rank in (0, 1)}
    assert counted(hub, "written") == written
    assert get("/api/runs/big")["counts"] == before
    assert [lane["rank"] for lane in get("/api/spans/lanes", run="big", step=5)["lanes"]] == [0, 1]


def test_import_of_what_is_partly_there(ask: Ask, get: Get, hub: Hub) -> None:
    """The spans that are not stored are taken, once each, though a file has them twice."""
    body = json.dumps(get("/api/spans/export", run="big", step=7)).encode()
    other = body.replace(trace_of(7, 1).hex().encode(), b"ab" * 16)
    written = counted(hub, "written")
    found = ask("POST", "/api/spans/import", content=body + b"\n" + other + b"\n" + other).json()
    assert (found["spans"], found["already"], found["runs"]) == (3, 15, ["big"])
    assert counted(hub, "written") == written + 3


def test_a_span_that_began_is_ended_by_a_file(hub: Hub) -> None:
    """An imported span with an end replaces a stored open one; an open span counts as already stored."""
    stored = read_range(hub.store.engine, SpanRange(trace_id=trace_of(8, 0)), limit=1)[0][0].span
    begun = structs.replace(stored, duration=None)
    id = stored.trace_id, stored.span_id
    assert known_spans(hub.store.engine, [begun]).keys() == {id}
    other = structs.replace(begun, span_id=b"unending")
    writer = Writer(id="w9", run="begun", project="gpt", wall_ns=START)
    hub.store.write(Batch(writer, 1, [other]))
    assert known_spans(hub.store.engine, [other]).keys() == {(other.trace_id, other.span_id)}
    assert known_spans(hub.store.engine, [structs.replace(other, duration=5)]) == {}


def test_lines_of_one_process_are_one_group(get: Get) -> None:
    """Batches are numbered within a process: no line may pass for the one before it."""
    lines = [json.dumps(get("/api/spans/export", trace_id=trace_of(step, 0).hex())).encode() for step in (5, 6)]
    (group,) = trace_files.read_file(b"\n".join(lines), "", "p", 0)[1].groups
    assert [record.step for record in group.records] == [5] * 3 + [6] * 3


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "resourceSpans"),
        (b"{}", "resourceSpans"),
        (b"[{", "not JSON"),
        (b'{"traceEvents": 1}', "traceEvents"),
        (b"{nope", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        (b'{"resourceSpans": ', "line 1 column 19"),
        (b"\x1f\x8bbroken", "decompressed"),
    ],
)
def test_files_that_are_none(ask: Ask, data: bytes, word: str) -> None:
    """A file of another kind is refused with what was missing."""
    answer = ask("POST", "/api/spans/import", content=data)
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"]


def test_import_needs_admin_and_keeps_to_its_project(hub: Hub, ask: Ask) -> None:
    """Importing needs the scope; a token of one project cannot write to runs of another."""
    tokens = hub.guard.tokens
    texts = {"read": tokens.create(["read"])[1], "one": tokens.create(["admin"], project="tiny")[1]}
    data = json.dumps(CHROME).encode()

    def send(who: str, run: str) -> Any:
        headers = {"Authorization": f"Bearer {texts[who]}"} if who else {}
        return ask("POST", f"/api/spans/import?run={run}", content=data, headers=headers)

    assert send("", "x").status_code == 401
    assert send("read", "x").status_code == 403
    refused = send("one", "big").json()
    assert "another project" in next(iter(key for key in refused["rejected"] if "project" in key))


@pytest.mark.parametrize("format", ["chrome", "otlp"])
def test_reading_takes_few_times_the_size(format: str) -> None:
    """Events and spans are parsed part by part: a file takes less than six times its size beside itself."""
    events = [{"ph": "X", "name": f"op{n % 9}", "pid": 1, "tid": n % 4, "ts": n * 9, "dur": 5} for n in range(30_000)]
    spans = [
        {"traceId": f"{n // 9 + 1:032x}", "spanId": f"{n + 1:016x}", "name": f"op{n % 9}"}
        | {"startTimeUnixNano": str(10**18 + n), "endTimeUnixNano": str(10**18 + n + 5)}
        for n in range(20_000)
    ]
    document = {
        "chrome": {"traceEvents": [{**event, "cat": "op", "args": {"id": event["ts"]}} for event in events]},
        "otlp": {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]},
    }[format]
    data = json.dumps(document).encode()
    tracemalloc.start()
    try:
        read_as, found = read_file(data, "run", "project", time.time_ns())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (read_as, sum(len(group.records) for group in found.groups)) == (
        format,
        {"chrome": 30_000, "otlp": 20_000}[format],
    )
    assert peak < 6 * len(data)
