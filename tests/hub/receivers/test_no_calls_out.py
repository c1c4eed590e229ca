"""Addresses in requests: a hub keeps them as texts and calls none, whoever sends them."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub.conftest import JSON, RunningHub

MLFLOW = "/api/2.0/mlflow/"
CREATE = """mutation Create { createArtifact(input: {projectName: "p", artifactTypeName: "data",
  artifactCollectionName: "far", digest: "d"}) { artifact { id } } }"""
MANIFEST = """mutation Manifest($id: ID!) { createArtifactManifest(input: {artifactID: $id, name: "m", digest: "d"}) {
  artifactManifest { file { uploadUrl } } } }"""
COMMIT = "mutation Commit($id: ID!) { commitArtifact(input: {artifactID: $id}) { artifact { state } } }"
FILES = "query Files($id: ID!) { artifact(id: $id) { files { edges { node { name url directUrl } } } } }"


@pytest.fixture
def called() -> Iterator[tuple[str, list[Any]]]:
    """An address, and who called it."""
    found: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, who = server.accept()
                except OSError:
                    return
                found.append(who)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/latest/meta-data", found
        server.shutdown(socket.SHUT_RDWR)


def test_no_address_of_a_request_is_called(hub: RunningHub, called: tuple[str, list[Any]]) -> None:
    """Places of artifacts, sources of models, references in manifests, and notifiers in rules, asked for afterwards."""
    address, callers = called

    def send(method: str, path: str, body: Any = None) -> Any:
        answer = hub.request(method, path, None if body is None else json.dumps(body).encode(), {"content-type": JSON})
        assert answer.status < 500, (path, answer.body)
        return answer.json() if answer.headers.get("content-type", "").startswith(JSON) and answer.body else {}

    made = send("POST", f"{MLFLOW}experiments/create", {"name": "far", "artifact_location": address})
    run = send("POST", f"{MLFLOW}runs/create", {"experiment_id": made["experiment_id"]})["run"]["info"]["run_id"]
    send("GET", f"{MLFLOW}artifacts/list?run_id={run}")
    send("GET", f"/get-artifact?run_uuid={run}&path=x")
    send("GET", f"/api/2.0/mlflow-artifacts/artifacts?path={address}")
    send("POST", f"{MLFLOW}registered-models/create", {"name": "far"})
    send("POST", f"{MLFLOW}model-versions/create", {"name": "far", "source": address, "run_id": run})
    send("GET", f"{MLFLOW}model-versions/get-download-uri?name=far&version=1")
    send("GET", "/model-versions/get-artifact?name=far&version=1&path=x")
    send("POST", f"{MLFLOW}runs/log-inputs", {"run_id": run, "datasets": [{"dataset": {
        "name": "d", "digest": "1", "source_type": "http", "source": json.dumps({"url": address})}}]})  # fmt: skip
    artifact = send("POST", "/graphql", {"query": CREATE})["data"]["createArtifact"]["artifact"]["id"]
    asked = {"query": MANIFEST, "variables": {"id": artifact}}
    place = send("POST", "/graphql", asked)["data"]["createArtifactManifest"]["artifactManifest"]["file"]["uploadUrl"]
    contents = {"far": {"digest": "d", "ref": address, "size": 3}}
    manifest = {"version": 1, "storagePolicy": "wandb-storage-policy-v1", "storagePolicyConfig": {}}
    send("PUT", place.partition(str(hub.port))[2], {**manifest, "contents": contents})
    for query in (COMMIT, FILES):
        told = send("POST", "/graphql", {"query": query, "variables": {"id": artifact}})
        assert "errors" not in told
    assert address in json.dumps(told)
    rules = f"notifiers:\n  far: {{webhook: {{url: '{address}'}}}}\nrules:\n  - {{name: a, key: b, when: '> 5'}}\n"
    refused = hub.request("PUT", "/api/alerts/rules", json.dumps({"yaml": rules}).encode(), {"content-type": JSON})
    assert refused.status == 400
    for path in (f"/api/runs/{run}/files", f"/api/runs/{run}/artifacts", f"/api/runs/{run}/media", "/api/health"):
        hub.request("GET", path)
    assert callers == []
    with socket.create_connection(("127.0.0.1", int(address.split(":")[2].split("/")[0]))) as own:
        own.recv(1)
    assert len(callers) == 1
