"""Who may see what: without a token nothing, with one for a project that project only."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.questions.openapi import ENDPOINTS
from stepscope.hub.service import Hub
from stepscope.model.names import EVENT_ARTIFACT, EVENT_ARTIFACT_USED, SCOPE_SAMPLES
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log, Metric
from tests.hub.questions.world import trace_of


@pytest.fixture(scope="module")
def seen_by(hub: Hub, ask: Callable[..., Any]) -> Callable[..., Any]:
    """Ask with a token that reaches the project `tiny`, `gpt`, or all."""
    tokens = hub.guard.tokens
    known = {
        "tiny": tokens.create(["read"], project="tiny")[1],
        "gpt": tokens.create(["read"], project="gpt")[1],
        "all": tokens.create(["read"])[1],
        "writer": tokens.create(["ingest"])[1],
    }

    def send(who: str, path: str, method: str = "GET", headers_of: Any = None, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {known[who]}"} if who else headers_of or {}
        return ask(method, path, headers=headers, **options)

    return send


def test_a_token_is_needed(seen_by: Callable[..., Any]) -> None:
    """Reading needs a token with the scope `read`."""
    assert seen_by("", "/api/runs").status_code == 401
    assert seen_by("writer", "/api/runs").status_code == 403
    assert seen_by("all", "/api/runs").json()["total"] == 14


def test_one_project_only(seen_by: Callable[..., Any]) -> None:
    """A token of a project sees neither runs nor records of another."""
    assert {run["project"] for run in seen_by("tiny", "/api/runs").json()["runs"]} == {"tiny"}
    paths = ("", "/keys", "/series?key=trainer/loss", "/steps/1", "/export")
    for path in paths:
        assert seen_by("tiny", f"/api/runs/big{path}").status_code == 404, path
        assert seen_by("gpt", f"/api/runs/big{path}").status_code == 200, path
    for path in ("/api/spans", "/api/logs", "/api/alerts"):
        assert seen_by("tiny", path).status_code == 403
        assert seen_by("tiny", f"{path}?run=big").status_code == 404
        assert seen_by("gpt", f"{path}?run=big").status_code == 200
    trace = f"/api/traces/{trace_of(3, 1).hex()}"
    assert seen_by("tiny", trace).status_code == 404
    assert seen_by("gpt", trace).status_code == 200


def test_sql_needs_every_project(seen_by: Callable[..., Any]) -> None:
    """SQL cannot be kept to a project, so such a token has none."""
    question = {"sql": "SELECT count() AS n FROM runs"}
    assert seen_by("gpt", "/api/sql", "POST", json=question).status_code == 403
    assert seen_by("all", "/api/sql", "POST", json=question).json()["rows"] == [[14]]


def test_alerts_are_kept_to_a_project(hub: Hub, seen_by: Callable[..., Any]) -> None:
    """A token of a project sees the alerts of that project, and changes nothing that concerns all."""
    hub.alerting.save_rules("rules: [{name: any, key: trainer/loss, when: '> -1'}]")
    writer = Writer(id="w", run="big", project="gpt")
    batch = Batch(writer, 1, [Metric(time.time_ns(), 1, None, "trainer", {"loss": 1.0})])
    hub.alerting.waiting.add([ReceivedBatch("test", batch)])
    hub.alerting.step()
    (alert,) = seen_by("gpt", "/api/alerts/states?rule=any").json()["alerts"]
    assert seen_by("tiny", "/api/alerts/states").json()["alerts"] == []
    assert seen_by("tiny", f"/api/alerts/states/{alert['id']}").status_code == 404
    assert seen_by("all", f"/api/alerts/states/{alert['id']}/acknowledge", "POST").status_code == 403
    admin = hub.guard.tokens.create(["admin"], project="gpt")[1]
    headers = {"Authorization": f"Bearer {admin}"}
    assert seen_by("", "/api/alerts/rules", "PUT", headers_of=headers, json={"yaml": "rules: []"}).status_code == 403
    assert seen_by("", "/api/alerts/silences", "POST", headers_of=headers, json={"for": "1h"}).status_code == 403


def test_a_shared_run_and_nothing_else(hub: Hub, ask: Callable[..., Any]) -> None:
    """The token of a link reads its run, with logs, spans and alerts; all else is refused, and so is every change."""
    _, text = hub.guard.tokens.create(["share"], project="gpt", run="big", seconds=600)

    def send(method: str, path: str, **options: Any) -> int:
        return int(ask(method, path, headers={"Authorization": f"Bearer {text}"}, **options).status_code)

    seen = ("", "/keys", "/series?key=trainer/loss", "/steps/70", "/findings", "/goodput", "/summary", "/edits")
    for path in (*(f"/api/runs/big{each}" for each in seen), *(f"/api/{each}?run=big" for each in ("spans", "logs"))):
        assert send("GET", path) == 200, path
    assert send("GET", "/api/fields?run=big") == 200
    unseen = ("/api/runs", "/api/runs/again", "/api/runs/again/keys", "/api/projects", "/api/health", "/metrics")
    more = ("/api/spans", "/api/spans?run=again", "/api/logs", "/api/fields", "/api/fields?run=big&run=again")
    rest = ("/api/series?run=big&run=again&key=loss", "/api/live", "/api/live?run=again", "/api/sql/tables")
    last = ("/api/alerts/silences", "/api/dashboards", "/api/views?project=gpt", f"/api/traces/{trace_of(3, 1).hex()}")
    for path in (*unseen, *more, *rest, *last):
        assert send("GET", path) == 403, path
    assert send("POST", "/api/sql", json={"sql": "SELECT 1"}) == 403
    assert send("PATCH", "/api/runs/big", json={"name": "mine"}) == 403
    assert send("DELETE", "/api/runs/big") == 403
    assert send("POST", "/v1/stepscope", content=b"") == 403


def test_no_parameter_leads_a_link_to_another_run(hub: Hub, ask: Callable[..., Any]) -> None:
    """Whatever else a request names, as a run or by a trace, a link shows its run: every parameter is tried."""
    _, text = hub.guard.tokens.create(["share"], project="gpt", run="again", seconds=600)
    headers = {"Authorization": f"Bearer {text}"}
    for run in ("again", "big"):
        sample = Log(1, 1, None, None, None, 9, "samples", {"prompt": "1+1", "completion": "2"}, SCOPE_SAMPLES)
        hub.store.write(Batch(Writer(id=f"samples-{run}", run=run, project="gpt"), 1, [sample]))
    tried = 0
    for endpoint in ENDPOINTS:
        named = {param.name for param in endpoint.params}
        others = [param for param in endpoint.params if "run" in param.name and param.name not in ("run", "run_column")]
        if endpoint.method != "GET" or "run" not in named:
            continue
        for param in others:
            query = {param.name: "big"} | ({} if "{run}" in endpoint.path else {"run": "again"})
            found = ask("GET", endpoint.path.replace("{run}", "again"), params=query, headers=headers)
            assert found.status_code == 403, (endpoint.path, param.name, found.text[:200])
            tried += 1
        if "trace_id" in named:
            query = {"run": "again", "trace_id": trace_of(3, 1).hex()}
            found = ask("GET", endpoint.path, params=query, headers=headers)
            assert found.status_code in (403, 404) or b"train.step" not in found.content, endpoint.path
            tried += 1
    assert tried >= 5


def test_a_link_names_no_other_run(hub: Hub, ask: Callable[..., Any]) -> None:
    """The runs at the other end of an artifact are left out, and counted as none."""
    made = {"id": "a1", "name": "model", "kind": "model", "path": "/m", "manifest": "x"}
    for run, name, attrs in (("maker", EVENT_ARTIFACT, made), ("user", EVENT_ARTIFACT_USED, {"artifact": "a1"})):
        event = Event(time.time_ns(), None, None, None, None, 9, name, attrs)
        hub.store.write(Batch(Writer(id=f"w-{run}", run=run, project="gpt"), 1, [event]))
    path, seen = "/api/runs/maker/artifacts", []
    for token in (hub.guard.tokens.create(["read"]), hub.guard.tokens.create(["share"], project="gpt", run="maker")):
        found = ask("GET", path, headers={"Authorization": f"Bearer {token[1]}"})
        seen.append([(each["used_by"], each["users"]) for each in found.json()["made"]])
    assert seen == [[(["user"], 1)], [([], 0)]]


def test_links_are_made_listed_and_revoked(hub: Hub, ask: Callable[..., Any]) -> None:
    """By an admin, of a run or a project that it sees; whoever may only read makes none, and sees none."""

    def send(text: str, method: str, path: str, **options: Any) -> Any:
        return ask(method, path, headers={"Authorization": f"Bearer {text}"}, **options)

    tokens = hub.guard.tokens
    admin, limited = tokens.create(["admin"], name="ann")[1], tokens.create(["admin"], project="tiny")[1]
    run = send(admin, "POST", "/api/shares", json={"kind": "run", "id": "big", "for": "2h"}).json()
    project = send(admin, "POST", "/api/shares", json={"kind": "project", "id": "gpt", "for": 3600}).json()
    assert run["expires"] - run["created"] == pytest.approx(7200, abs=5)
    secret, path = run["path"].removeprefix("#/share/").split("/")
    assert path == "big"
    assert send(secret, "GET", "/api/runs/big").headers["x-stepscope-access"] == "share run"
    assert send(secret, "GET", "/api/runs/again").status_code == 403
    assert send(secret, "GET", "/api/shares").status_code == 403
    of_project = project["path"].removeprefix("#/share/").removesuffix("?project=gpt")
    seen = send(of_project, "GET", "/api/runs")
    assert {each["project"] for each in seen.json()["runs"]} == {"gpt"}
    assert seen.headers["x-stepscope-access"] == "read project"
    assert send(of_project, "PATCH", "/api/runs/big", json={"name": "mine"}).status_code == 403
    assert send(of_project, "POST", "/api/shares", json={"kind": "run", "id": "big"}).status_code == 403
    ids = [each["id"] for each in send(admin, "GET", "/api/shares").json()["links"]]
    assert ids[:2] == [project["id"], run["id"]]
    only = send(admin, "GET", "/api/shares?run=big").json()["links"][0]
    assert (only["id"], only["name"], "path" in only) == (run["id"], "link to big, by ann", False)
    assert [each["id"] for each in send(admin, "GET", "/api/shares?project=gpt").json()["links"]] == [project["id"]]
    for wrong in ("9 steps", "2y", "0s"):
        answer = send(admin, "POST", "/api/shares", json={"kind": "run", "id": "big", "for": wrong})
        assert answer.status_code == 400, wrong
    for kind, known in (("run", "big"), ("project", "gpt")):
        for who, id in ((admin, "none"), (limited, known)):
            assert send(who, "POST", "/api/shares", json={"kind": kind, "id": id}).status_code == 404
    assert send(limited, "GET", "/api/shares").json()["links"] == []
    assert send(limited, "DELETE", f"/api/shares/{run['id']}").status_code == 404
    not_a_link = next(each.id for each in tokens.all() if each.name == "ann")
    assert send(admin, "DELETE", f"/api/shares/{not_a_link}").status_code == 404
    for made in (run, project):
        assert send(admin, "DELETE", f"/api/shares/{made['id']}").json() == {"id": made["id"], "revoked": True}
    assert send(secret, "GET", "/api/runs/big").status_code == 401


def test_an_end_ends_a_token(hub: Hub, ask: Callable[..., Any]) -> None:
    """After its end a token is as unknown as one that was revoked, and the next that is made removes it."""
    tokens = hub.guard.tokens
    token, text = tokens.create(["share"], run="big", project="gpt", seconds=-1)
    assert ask("GET", "/api/runs/big", headers={"Authorization": f"Bearer {text}"}).status_code == 401
    assert not tokens.knows(token)
    tokens.create(["read"])
    assert token.id not in [each.id for each in tokens.all()]
