"""Artifacts of W&B clients while the disk takes nothing and across kills: what is acknowledged is on disk, once."""

import http.client
import json
import random
import resource
import threading
import time
from typing import Any

import pytest

from tests.dialects.wandb.receiver.test_manifests import COMMIT, MANIFEST, manifest, put
from tests.dialects.wandb.receiver.test_service import UPSERT, ask
from tests.hub.conftest import JSON, RunningHub, StartHub
from tests.repeats import repeats
from tests.waiting import wait_until

CREATE = """mutation Create($digest: String!, $alias: String!) { createArtifact(input: {projectName: "p", runName: "r",
  artifactTypeName: "model", artifactCollectionName: "m", digest: $digest, aliases: [{alias: $alias}]}) {
  artifact { id state } } }"""
USE = """mutation Use($id: ID!) { useArtifact(input: {artifactID: $id, runName: "r"}) { artifact { id } } }"""
VERSIONS = """query Versions { project(name: "p") { artifactCollection(name: "m") { versions(first: 10000) { edges {
  node { id version state digest aliases { alias } } } } } } }"""
KILLS = repeats(4, 20)


def versions(hub: RunningHub) -> list[dict[str, Any]]:
    """The committed versions."""
    found = ask(hub, VERSIONS)["project"]["artifactCollection"]
    return [] if found is None else [each["node"] for each in found["versions"]["edges"]]


def prepared(hub: RunningHub, digest: str) -> str:
    """An artifact that is ready to be committed."""
    id = str(ask(hub, CREATE, digest=digest, alias="best")["createArtifact"]["artifact"]["id"])
    place = ask(hub, MANIFEST, id=id)["createArtifactManifest"]["artifactManifest"]["file"]["uploadUrl"]
    assert put(hub, place, manifest(3))[0] == 200
    return id


def made(hub: RunningHub) -> list[str]:
    """The versions among the artifacts of the run on the page."""
    return sorted(each["version"] for each in hub.request("GET", "/api/runs/r/artifacts").json()["made"])


def test_what_the_disk_does_not_take_is_not_committed(start_hub: StartHub) -> None:
    """A commit that was refused is not seen; repeated with room, it is on disk and in the run, with its aliases."""
    hub = start_hub()
    assert hub.process is not None
    ask(hub, UPSERT, name="r", project="p")
    first = prepared(hub, "d0")
    ask(hub, COMMIT, id=first)
    second = prepared(hub, "d1")
    _, hard = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    for query in (COMMIT, USE):
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (0, hard))
        id = second if query == COMMIT else first
        body = json.dumps({"query": query, "variables": {"id": id}}).encode()
        assert hub.post("/graphql", body, JSON).status == 503
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        if query == COMMIT:
            assert [each["version"] for each in versions(hub)] == ["v0"]
        ask(hub, query, id=id)
    hub.kill()
    hub.start()
    found = {each["version"]: {alias["alias"] for alias in each["aliases"]} for each in versions(hub)}
    assert found == {"v0": {"v0"}, "v1": {"v1", "best", "latest"}}
    wait_until(lambda: made(hub) == ["v0", "v1"])
    used = hub.request("GET", "/api/runs/r/artifacts").json()["used"]
    assert [each["name"] for each in used] == ["m"]


class Committer(threading.Thread):
    """Logs artifacts, each until it is acknowledged."""

    def __init__(self, hub: RunningHub, name: str) -> None:
        super().__init__(daemon=True)
        self.hub, self.label = hub, name
        self.acknowledged: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        """Log until stopped."""
        while not self.done.is_set():
            digest = f"{self.label}-{len(self.acknowledged)}"
            id = self._again(lambda digest=digest: prepared(self.hub, digest))
            if id and self._again(lambda id=id: ask(self.hub, COMMIT, id=id)):
                self.acknowledged.append(digest)

    def _again(self, call: Any) -> Any:
        while not self.done.is_set():
            try:
                return call()
            except (OSError, http.client.HTTPException, AssertionError, ValueError):
                self.done.wait(0.05)
        return None


@pytest.mark.timeout(120 + 30 * KILLS)
def test_kills_during_commits(start_hub: StartHub) -> None:
    """After every SIGKILL all acknowledged versions are there once, with numbers of their own, and in the run."""
    hub = start_hub()
    ask(hub, UPSERT, name="r", project="p")
    clients = [Committer(hub, name) for name in ("a", "b")]
    for client in clients:
        client.start()
    dice = random.Random(7)
    for _ in range(KILLS):
        before = [len(client.acknowledged) for client in clients]
        wait_until(lambda before=before: [len(client.acknowledged) for client in clients] > before)
        time.sleep(dice.random())
        hub.kill()
        hub.start()
    for client in clients:
        client.done.set()
        client.join()
    found = versions(hub)
    digests = [each["digest"] for each in found]
    acknowledged = [digest for client in clients for digest in client.acknowledged]
    assert acknowledged
    assert sorted(set(acknowledged) - set(digests)) == []
    assert len(digests) == len(set(digests))
    assert len({each["version"] for each in found}) == len(found)
    for alias in ("latest", "best"):
        assert sum(alias in [each["alias"] for each in node["aliases"]] for node in found) == 1
    shown = {each["digest"]: each["version"] for each in found}
    wait_until(lambda: {shown[digest] for digest in acknowledged} <= set(made(hub)))
    assert len(made(hub)) == len(set(made(hub)))
