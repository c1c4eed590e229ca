"""Scopes of each dialect's routes and fields: a token that may send can neither delete nor read what others sent."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from stepscope.dialects.wandb.receiver.run_operations import Caller
from stepscope.dialects.wandb.receiver.service import FIELDS, Wandb
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.receivers.receiver import open_receivers, ordered_routes
from stepscope.hub.security.guard import Access, RequestHead
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import AccessRules
from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.dialects.wandb.receiver.conftest import run_wandb
from tests.hub.conftest import JSON, RunningHub, StartHub
from tests.hub.test_connections import wait_for

EDITS = {
    "/logged-models/{model_id}/tags/{key:path}",
    *("/registered-models/delete-tag", "/registered-models/alias", "/model-versions/delete-tag"),
    "/traces/{trace_id}/tags",
}
"""Deletions of one tag or alias, which a logging client sends to change what it wrote."""
OWN_OR_NONE = {
    *("viewer", "serverInfo", "entity", "organization", "clientIDMapping"),  # constants
    *("model", "artifact"),  # only of runs that the token created
    "project",  # null
}
"""The root queries that a token without the scope `read` may send."""


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub in this process."""
    pytest.importorskip("tests.chdb")
    home = HubHome(tmp_path_factory.mktemp("scopes") / "home")
    hub = Hub(HubOptions(home=home.home), home, open_home_store(home), Tokens(home.tokens))
    yield hub
    hub.close(0.1)


def test_every_route_has_the_scope_of_its_verb(inside: Hub) -> None:
    """DELETE needs `admin`, GET `read`, and HEAD what GET needs, in every dialect."""
    receivers = open_receivers(inside)
    rules = AccessRules(receivers, inside.limits, cast(Any, None))
    for receiver, route in ordered_routes(receivers):
        path = route.path.replace(":path", "").replace("{", "").replace("}", "")
        if route.methods == ("DELETE",) and not route.path.endswith(tuple(EDITS)):
            assert route.scope == "admin", route.path
        if "GET" in route.methods:
            assert rules.find(RequestHead("HEAD", path, {})) == rules.find(RequestHead("GET", path, {})), path
        if route.methods == ("GET",) and receiver.name in ("mlflow", "wandb"):
            assert route.scope in ("read", None), route.path
        if route.path.endswith(("/delete", "/restore")):
            assert route.scope == "admin", route.path
    wandb = next(each for each in receivers if isinstance(each, Wandb))
    caller = Caller(Access(), "http://hub")
    found = [wandb._operations, wandb._run_queries, wandb._artifact_queries]
    assert {name for each in found for name in each.mutations(caller)} == set(FIELDS["mutation"])
    queries = {name for each in found for name in each.queries(caller)}
    assert queries - OWN_OR_NONE == set(FIELDS["query"])
    assert {FIELDS["mutation"][name] for name in FIELDS["mutation"] if name in ("deleteRun", "deleteArtifact")} == {
        "admin"
    }


BUCKET = "displayName notes tags config historyTail summaryMetrics historyLineCount"
MODEL = f'{{ model(name: "p") {{ bucket(name: "theirs") {{ {BUCKET} }} }} }}'
UPSERT = 'mutation { upsertBucket(input: {modelName: "p", name: "theirs"%s}) { bucket { config displayName } } }'


def graphql(hub: RunningHub, token: str, query: str) -> Any:
    """Send one query."""
    header = base64.b64encode(f"api:{token}".encode()).decode()
    answer = hub.post("/graphql", json.dumps({"query": query}).encode(), JSON, authorization=f"Basic {header}")
    assert answer.status == 200, answer.body
    return answer.json()


def test_a_token_that_sends_reads_and_deletes_nothing_of_others(start_hub: StartHub) -> None:
    """Neither MLflow's DELETE and HEAD nor W&B's GraphQL give an `ingest` token what another token recorded."""
    hub = start_hub()
    tokens = Tokens(hub.home / "hub" / "tokens.json")
    theirs, mine = (tokens.create(["ingest"])[1] for _ in range(2))
    full = tokens.create(["ingest", "read"])[1]
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)
    server = RestCalls(hub.port)
    shown = {"authorization": f"Bearer {full}"}
    run = server.post("runs/create", {"experiment_id": "0"}, **shown).body["run"]["info"]["run_id"]
    file = f"/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/a.txt"
    assert server.send("PUT", file, b"data", **shown).status == 200
    for method, path in (("DELETE", file), ("DELETE", file.partition("/0/")[0] + "/0"), ("HEAD", file), ("GET", file)):
        assert hub.request(method, path, None, {"authorization": f"Bearer {mine}"}).status == 403, (method, path)
    for call in ("runs/delete", "runs/restore", "experiments/delete"):
        assert server.post(call, {"run_id": run, "experiment_id": "0"}, authorization=f"Bearer {mine}").status == 403
    version = {"name": "cats", "source": "s3://bucket/model", "version": "1"}
    for call in ("registered-models/create", "model-versions/create"):
        assert server.post(call, version, **shown).status == 200
    for call in ("registered-models/delete", "model-versions/delete"):
        body = json.dumps(version).encode()
        assert server.send("DELETE", call, body, authorization=f"Bearer {full}").status == 403
    assert server.send("GET", "registered-models/get?name=cats", authorization=f"Bearer {mine}").status == 403
    config = ', displayName: "a name", config: "{\\"lr\\": {\\"value\\": 7}}"'
    assert "errors" not in graphql(hub, theirs, UPSERT % config)
    own = graphql(hub, theirs, MODEL)["data"]["model"]["bucket"]
    assert (own["displayName"], "7" in own["config"]) == ("a name", True)
    for token, seen in ((mine, False), (full, True)):
        assert ("a name" in json.dumps(graphql(hub, token, MODEL))) is seen
        assert ("lr" in json.dumps(graphql(hub, token, UPSERT % ""))) is seen
        refused = graphql(hub, token, "{ models { edges { node { name } } } }").get("errors")
        assert (refused is None) is seen
        text = json.dumps(
            graphql(hub, token, 'mutation { deleteArtifact(input: {artifactID: "x"}) { artifact { id } } }')
        )
        assert "deleteArtifact needs a key with the scope 'admin'" in text


LOGGING = """
import wandb

for attempt in range(2):
    run = wandb.init(project="p", id="r", resume="allow", config={"lr": 3})
    assert run.config["lr"] == 3
    run.log({"loss": 1.0 + attempt})
    with open("data.txt", "w") as file:
        file.write(f"data {attempt}")
    artifact = wandb.Artifact("model", "model")
    artifact.add_file("data.txt")
    run.log_artifact(artifact)
    artifact.wait()
    print("STEP", run.step)
    run.finish()
"""


def test_the_real_client_logs_and_resumes_with_such_a_token(start_hub: StartHub, tmp_path: Path) -> None:
    """W&B's client logs values and artifacts, and resumes its own run, with a token of the scope `ingest` alone."""
    home = tmp_path / "home"
    (home / "hub").mkdir(parents=True)
    tokens = Tokens(home / "hub" / "tokens.json")
    token, full = tokens.create(["ingest"])[1], tokens.create(["read"])[1]
    hub = start_hub(home=home)
    output = run_wandb(hub, tmp_path / "client", LOGGING, key=token)
    assert output.count("STEP") == 2, output
    series = "/api/runs/r/series?key=loss"
    shown = {"authorization": f"Bearer {full}"}
    wait_for(lambda: b"2.0" in hub.request("GET", series, None, shown).body)
