"""Logs, events and alerts, searched over HTTP."""

from tests.hub.questions.conftest import Get
from tests.hub.questions.world import BAD, trace_of


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
