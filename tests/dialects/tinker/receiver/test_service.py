"""A hub stores telemetry of Tinker clients: every event once, losses reported, secrets masked."""

import json
import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from tests.dialects.tinker.receiver.test_telemetry_body import TINKER_036, TINKEX
from tests.hub.conftest import JSON, RunningHub, StartHub
from tests.hub.test_connections import wait_for
from tests.repeats import repeats

FUZZED = repeats(300, 10_000)
ACCEPTED = {"status": "accepted"}


def batch(session: str, indices: Sequence[int], process: str = "p1") -> bytes:
    """A body with generic events at these positions."""
    made = [
        {
            "event": "GENERIC_EVENT",
            "event_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session}/{process}/{index}")),
            "event_session_index": index,
            "severity": "INFO",
            "timestamp": "2026-11-16T08:00:00Z",
            "event_name": "tick",
            "event_data": {"step": index},
        }
        for index in indices
    ]
    body = {"events": made, "platform": "Linux", "sdk_version": "0.36.0", "session_id": session}
    return json.dumps({**body, "process_uuid": process}).encode()


def send(hub: RunningHub, body: bytes, **headers: str) -> Any:
    """Post telemetry; what a client reads."""
    answer = hub.post("/api/v1/telemetry", body, JSON, **headers)
    assert answer.status == 200, answer
    return answer.json()


def ask(hub: RunningHub, sql: str) -> list[Any]:
    """The rows of a query."""
    answer = hub.request("POST", "/api/sql", json.dumps({"sql": sql}).encode(), {"content-type": JSON}).json()
    rows: list[Any] = answer["rows"]
    return rows


def events_of(hub: RunningHub, run: str, count: int) -> list[dict[str, Any]]:
    """Wait for the events of a run; the oldest first."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        answer = hub.request("GET", f"/api/logs?run={run}&sort=oldest&limit=500").json()
        found[:] = answer.get("logs", [])
        return len(found) >= count

    wait_for(is_there, 30)
    return found


def test_each_event_is_stored_once(hub: RunningHub) -> None:
    """By its id: in a batch that is repeated, cut differently, or sent again under another idempotency key."""
    assert send(hub, batch("once", range(10)), x_idempotency_key="a") == ACCEPTED
    assert send(hub, batch("once", range(10)), x_idempotency_key="b") == ACCEPTED
    assert send(hub, batch("once", range(5, 15))) == ACCEPTED
    assert sorted(event["step"] for event in events_of(hub, "once", 15)) == list(range(15))


def test_many_events_are_one_range_of_the_ledger(hub: RunningHub) -> None:
    """What the hub must remember for ever does not grow with the events of a client."""
    for first in range(0, 200, 50):
        send(hub, batch("ranges", range(first, first + 50)))
    events_of(hub, "ranges", 200)
    run = "(SELECT max(run) FROM runs WHERE id = 'ranges')"
    assert ask(hub, f"SELECT uniqExact(first), max(last) - min(first) FROM ledger WHERE run = {run}") == [[1, 199]]


def test_a_gap_is_a_loss(hub: RunningHub) -> None:
    """Positions that never came are counted in health and metrics, and are an event and a metric of the run."""
    send(hub, batch("gap", [0, 1]))
    send(hub, batch("gap", [4, 7]))
    found = events_of(hub, "gap", 5)
    (loss,) = [event for event in found if event["name"] == "tinker.events_lost"]
    assert (loss["attrs"]["count"], loss["attrs"]["first"], loss["attrs"]["last"]) == (4, 2, 6)
    assert loss["severity"].startswith("WARN")
    assert hub.health()["receivers"]["tinker"]["dropped"]["event lost by its client"] >= 4
    assert b'reason="event lost by its client"' in hub.request("GET", "/metrics").body
    series = hub.request("GET", "/api/runs/gap/series?x=time&key=tinker/lost_events").json()
    assert "tinker/lost_events" in json.dumps(series)


def test_the_run_of_a_session(hub: RunningHub) -> None:
    """An exception, the failed end and the data of events are what any other run has; the key is masked."""
    send(hub, TINKER_036)
    found = {event["name"]: event for event in events_of(hub, "sess-1", 4)}
    assert found["exception"]["attrs"]["exception.message"] == "no"
    assert "tml-secret" not in json.dumps(found)
    run = hub.request("GET", "/api/runs/sess-1").json()
    assert (run["project"], run["status"]) == ("tinker", "failed")


def test_a_body_without_a_process(hub: RunningHub) -> None:
    """The client tinkex and tinker before 0.24 name no process, and sessionless clients no session of the service."""
    send(hub, TINKEX.replace(b'"0f9d"', b'"sessionless-0f9d"'))
    assert events_of(hub, "sessionless-0f9d", 1)[0]["name"] == "tinkex.http.request.stop"


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"{", {}), (b"x", {"content_encoding": "gzip"}), (b"x", {"content_encoding": "br"}), (bytes(21_000_000), {})],
)
def test_what_can_never_be_taken_is_accepted_and_counted(hub: RunningHub, body: bytes, headers: dict[str, str]) -> None:
    """A client would repeat it every second until it ends, and send nothing else."""
    before = sum(hub.health()["receivers"].get("tinker", {}).get("rejected", {}).values())
    assert send(hub, body, **headers) == ACCEPTED
    assert sum(hub.health()["receivers"]["tinker"]["rejected"].values()) == before + 1


def test_what_json_can_spell_is_stored(hub: RunningHub) -> None:
    """Integers beyond 64 bits, half surrogate pairs and positions that are no number cost no event."""
    event = {"event": "GENERIC_EVENT", "severity": "INFO", "timestamp": "2026-01-02T03:04:05Z", "event_name": "odd"}
    odd = [{"event_data": {"id": 2**100}}, {"event_data": {"a": "\ud800"}}, {"event_session_index": "7"}]
    body = {"session_id": "odd\ud800", "platform": 2**90, "process_uuid": "\udfff", "new": 2**80}
    events = [{**event, "event_id": f"odd-{at}", **each} for at, each in enumerate(odd)]
    send(hub, json.dumps({**body, "events": events}).encode())
    found = [each["attrs"] for each in events_of(hub, "odd?", 3) if each["name"] == "odd"]
    assert (found[0]["id"], found[1]["a"], found[2]["tinker.event_session_index"]) == (str(2**100), "?", "7")
    assert {each["tinker.new"] for each in found} == {str(2**80)}


def test_the_stand_in(hub: RunningHub) -> None:
    """A session is created once for one idempotency key, beats, and ends as its client says."""
    asked = {"tags": ["a", "team=b"], "user_metadata": {"lr": 0.1}, "sdk_version": "0.36.0", "display_name": "My run"}
    first, again = (
        hub.post("/api/v1/create_session", json.dumps(asked).encode(), JSON, x_idempotency_key="k").json()
        for _ in range(2)
    )
    assert first == again == {"type": "create_session", "session_id": first["session_id"]}
    session = first["session_id"]
    assert hub.post("/api/v1/session_heartbeat", json.dumps({"session_id": session}).encode(), JSON).json() == {
        "type": "session_heartbeat"
    }
    body = json.dumps({"reason": {"type": "errored"}, "detail": "out of money"}).encode()
    assert hub.post(f"/api/v1/sessions/{session}/finish", body, JSON).status == 200
    wait_for(lambda: hub.request("GET", f"/api/runs/{session}").json().get("status") == "failed")
    run = hub.request("GET", f"/api/runs/{session}").json()
    assert (run["name"], run["tags"]) == ("My run", {"a": True, "team": "b"})
    assert run["config"] == {"lr": 0.1, "sdk_version": "0.36.0"}
    missing = hub.post("/api/v1/create_model", b"{}", JSON)
    assert (missing.status, "--tinker-upstream" in missing.json()["detail"]) == (404, True)


def test_fuzzed_requests_are_answered(hub: RunningHub) -> None:
    """No body sent to any route makes the hub fail, and the next client is served."""
    chance = random.Random(7)
    seeds = [TINKER_036, TINKEX, batch("fuzz", range(3)), b'{"session_id": "fuzz"}', b'{"reason": {"type": []}}']
    paths = ["telemetry"] * 5 + ["create_session", "session_heartbeat", "sessions/fuzz/finish", "client/config"]
    for _ in range(FUZZED):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.randrange(6)] = chance.choice([b"", b"0", b'"', b"null", b"[]", chance.randbytes(3)])
        answer = hub.post(f"/api/v1/{chance.choice(paths)}", bytes(data), JSON)
        assert answer.status < 500, (answer, bytes(data))
    send(hub, batch("after-the-fuzz", [0]))
    assert events_of(hub, "after-the-fuzz", 1)


@pytest.fixture
def restarted(start_hub: StartHub) -> RunningHub:
    """A hub of its own."""
    return start_hub()


def test_nothing_acknowledged_is_lost_with_the_hub(restarted: RunningHub) -> None:
    """A hub killed right after its answers has every event once after the restart, and reports no gap."""
    hub = restarted
    for start in range(0, 200, 10):
        send(hub, batch("killed", range(start, start + 10)))
    hub.kill()
    hub.start()
    send(hub, batch("killed", range(190, 210)))
    found = events_of(hub, "killed", 210)
    assert sorted(event["step"] for event in found) == list(range(210))
    assert "dropped" not in hub.health()["receivers"]["tinker"]
