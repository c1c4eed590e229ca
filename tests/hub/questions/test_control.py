"""Requests to programs over the API: who may send them, which runs take them, and what is told of them."""

import pytest

from stepscope.hub.questions.openapi import ENDPOINTS
from stepscope.hub.questions.toolbox.endpoint import Endpoint
from stepscope.hub.security.guard import api_scope
from stepscope.hub.service import Hub
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Record
from stepscope.model.run_requests import Request
from tests.hub.questions.conftest import Get

CONTROLS = ("stopRun", "setLive")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_every_change_has_its_scope(endpoint: Endpoint) -> None:
    """Only the two requests to programs need `control`, whatever a run is called; other changes need `admin`.

    So does the list of links that open a run to others.
    """
    read = (endpoint.name != "listShareLinks" and endpoint.method == "GET") or endpoint.path == "/api/sql"
    wanted = "control" if endpoint.name in CONTROLS else "read" if read else "admin"
    for run in ("x", "a/stop", "live", "a/live/stop"):
        path = endpoint.path.replace("{run}", run).replace("{", "").replace("}", "")
        needed = api_scope(endpoint.method, path)
        assert needed in (wanted, (wanted, "share"))
        others = {api_scope(method, path) for method in ("DELETE", "PATCH", "PUT")}
        assert others == {"read" if endpoint.path == "/api/sql" else "admin"}


def store(hub: Hub, run: str, rank: int, *records: Record, attempt: int = 1) -> None:
    """Store records of a process of our own client."""
    id = f"r{rank}-a{attempt}-host-1-{rank:05x}{attempt}"
    writer = Writer(id=id, run=run, project="p", rank=rank, attempt=attempt, world_size=2, wall_ns=1)
    seqs[id] = seqs.get(id, 0) + 1
    hub.store.write(Batch(writer, seqs[id], list(records)))


seqs: dict[str, int] = {}


def event(name: str, time: int = 5, /, **attrs: object) -> Event:
    """An event as a process records it."""
    return Event(time, None, None, None, None, 9, name, attrs)


def test_what_became_of_requests(hub: Hub, get: Get) -> None:
    """The newest request is told with the processes that heard it; of settings the newest value that was applied."""
    declared = {"settings": {"lr": 1.0, "name": "a", "bad": [1]}}
    for rank in (0, 1):
        store(hub, "asked", rank, event(names.EVENT_STARTED, 1), event(names.EVENT_LIVE, 2, **declared))
    first = hub.edits.append("asked", "ada", request=Request(attempt=1, settings={"lr": 0.5, "name": "b"}))
    second = hub.edits.append("asked", "bob", request=Request(attempt=1, settings={"lr": 0.1}))
    stop = hub.edits.append("asked", "eve", request=Request(attempt=1, stop=True))
    changed = {"name": "lr", "value": 0.5, "before": 1.0, "request": first.id, "step": 7}
    store(hub, "asked", 0, event(names.EVENT_LIVE_CHANGED, 3, **changed))
    store(hub, "asked", 1, event(names.EVENT_LIVE_CHANGED, 3, **{**changed, "step": 9}))
    store(hub, "asked", 1, event(names.EVENT_STOP, 4, request=stop.id, who="eve", asks=True, step=11))
    found = get("/api/runs/asked/control")
    assert (found["allowed"], "has not ended" in found["reason"]) == (False, True)
    assert (found["stop"]["state"], found["stop"]["ranks"], found["stop"]["heard_step"]) == ("ended", 1, 11)
    by_name = {each["name"]: each for each in found["settings"]}
    assert (by_name["lr"]["value"], by_name["lr"]["kind"], by_name["name"]["value"]) == (0.5, "number", "a")
    assert "bad" not in by_name
    changes = [(each["name"], each["who"], each["state"], each["ranks"], each["step"]) for each in found["changes"]]
    assert changes == [
        ("lr", "bob", "ended", 0, None),
        ("lr", "ada", "applied", 2, 9),
        ("name", "ada", "ended", 0, None),
    ]
    assert found["changes"][0]["id"] == second.id
    store(hub, "asked", 1, event(names.EVENT_STOPPED, 5, request=stop.id, who="eve"))
    assert get("/api/runs/asked/control")["stop"]["state"] == "stopped"
    store(hub, "asked", 0, event(names.EVENT_STARTED, 6), attempt=2)
    again = get("/api/runs/asked/control")
    assert (again["attempt"], again["settings"], again["changes"]) == (2, [], [])
    assert (again["stop"]["attempt"], again["stop"]["last_step"]) == (1, None)
    assert get("/api/runs/asked/edits")["edits"] == []


def test_runs_that_take_no_requests(ask: object, get: Get) -> None:
    """A run that has ended is refused with its state, an unknown one is not found."""
    found = get("/api/runs/big/control")
    assert (found["allowed"], found["stop"], found["settings"], found["changes"]) == (False, None, [], [])
    for path, body in (("stop", None), ("live", {"lr": 1})):
        refused = ask("POST", f"/api/runs/big/{path}", json=body)  # type: ignore[operator]
        assert (refused.status_code, "only a run that has not ended" in refused.text) == (409, True)
        assert ask("POST", f"/api/runs/none/{path}", json=body).status_code == 404  # type: ignore[operator]
