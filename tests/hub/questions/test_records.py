"""Spans, traces, logs and alerts, asked over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.hub.questions.conftest import Get
from tests.hub.questions.world import BAD, FAILED, SPIKE, trace_of


def test_failed_spans(get: Get) -> None:
    """Spans are found by status, with their message."""
    for params in ({"error": "true"}, {"status": "error"}):
        (span,) = get("/api/spans", run="big", **params)["spans"]
        assert (span["step"], span["rank"], span["message"]) == (FAILED, 0, "out of memory")


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"step": SPIKE, "min_ms": 850}, 2),
        ({"attr.request_id": "r7", "name": "train.step"}, 2),
        ({"attr[request_id]": "r7", "attr.batch": "7", "rank": 1}, 3),
        ({"attr.batch": "8", "attr.request_id": "r7"}, 0),
        ({"trace_id": trace_of(3, 1).hex()}, 3),
    ],
)
def test_spans_by_anything(get: Get, params: dict[str, Any], count: int) -> None:
    """Step, name, duration, trace and any attribute narrow the search."""
    assert len(get("/api/spans", run="big", **params)["spans"]) == count


def test_pages_of_spans(get: Get) -> None:
    """`next` is the offset of the next page."""
    first = get("/api/spans", run="big", limit=2, sort="slowest")
    assert [span["duration_ms"] for span in first["spans"]] == [900.0, 900.0]
    assert first["next"] == 2
    assert get("/api/spans", run="big", limit=1000, offset=700)["next"] is None


def test_a_trace(get: Get) -> None:
    """A trace comes whole, parents first."""
    found = get(f"/api/traces/{trace_of(SPIKE, 1).hex()}")
    assert [(span["name"], span["depth"]) for span in found["spans"]] == [
        ("train.step", 0),
        ("train.forward", 1),
        ("train.backward", 1),
    ]
    assert (found["duration_ms"], found["runs"], found["ranks"]) == (900.0, ["big"], [1])
    get(f"/api/traces/{bytes(15).hex()}ff", expect=404)
    get("/api/traces/xyz", expect=400)


def test_logs(get: Get) -> None:
    """Text is found in any case, and a log leads to its trace."""
    found = get("/api/logs", run="big", q="STEP 7 DONE")["logs"]
    assert [log["rank"] for log in found] == [0, 1]
    assert found[0]["trace_id"] == trace_of(7, 0).hex()
    assert get("/api/logs", run="big", severity="ERROR")["logs"] == []
    assert len(get("/api/logs", trace_id=trace_of(7, 1).hex())["logs"]) == 1
    oldest = get("/api/logs", run="big", kind="log", sort="oldest", limit=1)["logs"][0]
    assert oldest["step"] == 0
    assert "severity" in get("/api/logs", expect=400, severity="loud")["error"]["message"]


def test_alerts(get: Get) -> None:
    """Alerts of all runs, or of a step."""
    (alert,) = get("/api/alerts")["alerts"]
    assert (alert["run"], alert["step"], alert["severity"], alert["body"]) == ("big", BAD, "ERROR", "loss is NaN")
    assert get("/api/alerts", run="big", step=1)["alerts"] == []


def test_alerts_are_a_kind_of_log(get: Get) -> None:
    """Who reads logs may ask for alerts, with all other conditions, and has none among logs and events."""
    (alert,) = get("/api/logs", run="big", kind="alert", q="nan", severity="WARN")["logs"]
    assert (alert["kind"], alert["name"], alert["body"]) == ("alert", "nan", "loss is NaN")
    assert get("/api/logs", run="big", kind="alert", step=1)["logs"] == []
    assert {each["kind"] for each in get("/api/logs", run="big", step=BAD)["logs"]} == {"log"}


def test_attributes_that_are_asked_for_are_few(ask: Callable[..., Any]) -> None:
    """A request for thousands of attributes is refused before the store is asked."""
    many = "&".join(f"attr.k{number}=v" for number in range(33))
    refused = ask("GET", f"/api/spans?{many}")
    assert refused.status_code == 400
    assert "32 times" in refused.json()["error"]["message"]
    assert ask("GET", f"/api/spans?{many.rpartition('&')[0]}").status_code == 200
