"""Traces: the real client reads them back from MLflow's own server and from a hub, with the same results."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.mlflow.receiver.both_servers import BothServers
from tests.forked import ForkedProgram

SCRIPT = Path(__file__).parent / "scripts" / "traces.py"
PLACE = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "$experiment"}}
API = "/api/3.0/mlflow/traces"


def play(port: int, folder: Path) -> Any:
    """Run the script with the real client, and return what it prints last."""
    folder.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "STEPSCOPE_", "OTEL_"))}
    env = {**kept, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        code = ForkedProgram(Path(shutil.copy(SCRIPT, folder)), [], env, "mlflow").wait(500)
    assert code == 0, (folder / "err").read_text()[-3000:]
    return json.loads((folder / "out").read_text().strip().splitlines()[-1])


def test_the_client_reads_the_same_traces(both_servers: BothServers, tmp_path: Path) -> None:
    """Spans, searches, orders, pages, tags, links and deletion."""
    theirs, ours = (play(each.port, tmp_path / name) for each, name in zip(both_servers.servers, "ab", strict=True))
    assert ours == theirs
    assert (ours["all"], ours["deleted"], ours["left"]) == (["one", "two", "three"], 1, 2)
    assert [each["name"] for each in ours["spans"]] == ["answer", "look up"]
    assert ours["found"]["status = 'ERROR'"] == ["three"]
    assert ours["by run"] == [["one", "two"], ["one", "two"], ["one"]]


@pytest.fixture(scope="module")
def both(both_servers: BothServers) -> BothServers:
    """Both servers, with a trace that has no spans."""
    trace = f"tr-{'cd' * 16}"
    info = {
        "trace_id": trace,
        "trace_location": PLACE,
        "request_time": "2026-01-02T03:04:05.678Z",
        "execution_duration": "1.500s",
        "state": "OK",
        "request_preview": "?",
        "client_request_id": "mine",
        "trace_metadata": {"a": "b"},
        "tags": {"team": "x", "mlflow.traceName": "bare"},
    }
    found = both_servers.reconnect()
    found.make("$trace", API, {"trace": {"trace_info": info}}, "trace", "trace_info", "trace_id")
    return found


def _shown(body: Any) -> Any:
    """An answer without what only one of the servers says: where spans are, and what it derived."""
    if isinstance(body, dict):
        return {
            key: _shown(value)
            for key, value in body.items()
            if key not in ("mlflow.artifactLocation", "mlflow.trace.infoFinalized", "mlflow.trace.spansLocation")
        }
    return [_shown(each) for each in body] if isinstance(body, list) else body


TRACE = f"tr-{'cd' * 16}"
ASKED: list[tuple[str, str, Any]] = [
    ("GET", f"{API}/{TRACE}", None),
    ("GET", f"{API}/none", None),
    ("GET", f"{API}/get?trace_id=none", None),
    ("GET", f"{API}/get", None),
    ("POST", f"{API}/batchGetInfos", {"trace_ids": [TRACE, "none"]}),
    ("POST", f"{API}/batchGetInfos", {"trace_ids": [TRACE], "experiment_ids": ["0"]}),
    ("POST", f"{API}/batchGetInfos", {}),
    ("POST", f"{API}/search", {"locations": [PLACE], "filter": "client_request_id = 'mine'"}),
    ("POST", f"{API}/search", {"locations": [PLACE], "filter": "execution_time_ms = 1500 AND name = 'bare'"}),
    ("POST", f"{API}/search", {"locations": [PLACE], "filter": "timestamp_ms = 1767323045678", "max_results": 1}),
    ("POST", f"{API}/search", {"locations": [PLACE], "max_results": 501}),
    ("POST", f"{API}/search", {"locations": [PLACE], "max_results": 0}),
    ("POST", f"{API}/search", {"locations": [PLACE], "page_token": "zz"}),
    ("POST", f"{API}/search", {"locations": [PLACE], "filter": "name = 'a' OR name = 'b'"}),
    ("POST", f"{API}/search", {"locations": [PLACE], "filter": "name"}),
    ("POST", f"{API}/search", {"locations": [PLACE], "filter": "tags.x IN ('a')"}),
    ("POST", f"{API}/search", {"locations": [PLACE], "order_by": ["name UP"]}),
    ("POST", f"{API}/search", {}),
    ("PATCH", f"{API}/{TRACE}/tags", {"key": "k", "value": "v"}),
    ("PATCH", f"{API}/{TRACE}/tags", {"value": "v"}),
    ("PATCH", f"{API}/{TRACE}/tags", {"key": "a?", "value": "v"}),
    ("PATCH", f"{API}/{TRACE}/tags", {"key": "mlflow.trace.spansLocation", "value": "v"}),
    ("DELETE", f"{API}/{TRACE}/tags", {"key": "k"}),
    ("DELETE", f"{API}/{TRACE}/tags", {"key": "none"}),
    ("DELETE", "/api/2.0/mlflow/traces/none/tags", {"key": "k"}),
    ("POST", "/api/2.0/mlflow/traces/link-to-run", {"trace_ids": ["x"] * 101, "run_id": "none"}),
    ("POST", f"{API}/delete-traces", {"experiment_id": "$experiment"}),
    ("POST", f"{API}/delete-traces", {"experiment_id": "$experiment", "max_timestamp_millis": 1, "request_ids": ["x"]}),
    ("POST", f"{API}/delete-traces", {"experiment_id": "$experiment", "request_ids": ["x"], "max_traces": 1}),
    ("POST", f"{API}/delete-traces", {"experiment_id": "$experiment", "max_timestamp_millis": 5, "max_traces": 0}),
    ("POST", f"{API}/delete-traces", {"experiment_id": "$experiment", "max_timestamp_millis": 5}),
    ("POST", f"{API}/delete-traces", {"request_ids": ["x"]}),
    ("POST", f"{API}/delete-traces", {"experiment_id": "$experiment", "max_timestamp_millis": 2 * 10**12}),
    ("GET", f"{API}/{TRACE}", None),
]


def test_descriptions_and_refusals(both: BothServers) -> None:
    """Descriptions are read back field by field alike; what is refused is refused in the same words."""
    wrong = []
    for method, path, body in ASKED:
        theirs, ours = both.ask(method, path, body)
        if ours.status >= 500 if theirs.status >= 500 else _shown(list(ours)) != _shown(list(theirs)):
            wrong.append(f"{method} {path} {body}\n{theirs}\n{ours}")
    assert not wrong, "\n".join(wrong)


def test_what_a_hub_cannot_search_by(both: BothServers) -> None:
    """Contents of spans, assessments and regular expressions are refused in words, and so are other calls."""
    for text in ("span.name = 'x'", "feedback.x = 'y'", "trace.text LIKE '%x%'", "tags.x RLIKE 'x'"):
        _, answer = both.ask("POST", f"{API}/search", {"locations": [PLACE], "filter": text})
        assert (answer.status, "not supported" in answer.body["message"]) == (400, True), answer
    refused = both.servers[1].post(f"{API}/{TRACE}/assessments", {})
    assert (refused.status, "no assessments" in refused.body["message"]) == (404, True)


def test_what_is_not_there(both: BothServers) -> None:
    """A tag of an unknown trace and a link to an unknown run are 404; MLflow shows a database error, and accepts."""
    server = both.servers[1]
    asked = (
        server.send("PATCH", f"{API}/none/tags", b'{"key": "k", "value": "v"}'),
        server.post("/api/2.0/mlflow/traces/link-to-run", {"trace_ids": [TRACE], "run_id": "none"}),
    )
    assert [(each.status, each.body["error_code"]) for each in asked] == [(404, "RESOURCE_DOES_NOT_EXIST")] * 2
