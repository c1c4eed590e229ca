"""The model registry of a hub: it survives a kill, is kept apart by projects, and masks secrets."""

from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.security.tokens import Tokens
from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.hub.conftest import RunningHub, StartHub

VERSION = {"name": "cats", "source": "s3://bucket/model", "tags": [{"key": "k", "value": "v"}]}


def read(server: RestCalls, **headers: str) -> Any:
    """All that a registry says of the model `cats`."""
    asked = ("registered-models/get?name=cats", "registered-models/alias?name=cats&alias=best", "model-versions/search")
    return [server.send("GET", path, **headers) for path in asked]


def test_a_kill_leaves_everything(start_hub: StartHub, tmp_path: Path) -> None:
    """What was acknowledged is there after `kill -9`; changes that are sent again change nothing."""
    hub: RunningHub = start_hub(home=tmp_path / "home")
    server = RestCalls(hub.port)
    server.post("registered-models/create", {"name": "cats"})
    for _ in range(2):
        server.post("model-versions/create", VERSION)
    for _ in range(2):
        server.post("registered-models/alias", {"name": "cats", "alias": "best", "version": "2"})
        server.post("model-versions/set-tag", {"name": "cats", "version": "1", "key": "a", "value": "b"})
    repeated = server.post("registered-models/create", {"name": "cats"})
    assert repeated.body["error_code"] == "RESOURCE_ALREADY_EXISTS"
    before = read(server)
    assert [each.status for each in before] == [200, 200, 200]
    assert before[1].body["model_version"]["version"] == "2"
    hub.kill()
    hub.start()
    server = RestCalls(hub.port)
    assert read(server) == before
    assert server.post("model-versions/create", VERSION).body["model_version"]["version"] == "3"


def test_a_project_has_its_own(start_hub: StartHub, tmp_path: Path) -> None:
    """A token of one project sees and changes the models that were registered with such a token, and no others."""
    home = tmp_path / "home"
    (home / "hub").mkdir(parents=True)
    tokens = Tokens(home / "hub" / "tokens.json")
    a, b, every = (
        {"authorization": f"Bearer {tokens.create(['ingest', 'read', 'admin'], project=project)[1]}"}
        for project in ("a", "b", None)
    )
    server = RestCalls(start_hub(home=home).port)
    run = server.post("runs/create", {"experiment_id": "0"}, **a).body["run"]["info"]
    assert server.post("registered-models/create", {"name": "cats"}, **a).status == 200
    made = {"name": "cats", "source": f"{run['artifact_uri']}/m", "run_id": run["run_id"]}
    assert server.post("model-versions/create", made, **a).status == 200
    server.post("registered-models/alias", {"name": "cats", "alias": "best", "version": "1"}, **a)
    assert [each.status for each in read(server, **a)] == [200, 200, 200]
    assert read(server, **a) == read(server, **every)
    assert [(each.status, each.body.get("model_versions")) for each in read(server, **b)] == [
        (404, None),
        (404, None),
        (200, None),
    ]
    assert server.post("model-versions/create", made, **b).status == 400, "a run of another project"
    assert server.post("model-versions/create", VERSION, **b).status == 404
    assert server.post("registered-models/create", {"name": "cats"}, **b).body["error_code"].endswith("EXISTS")
    assert server.post("registered-models/create", {"name": "dogs"}, **b).status == 200
    named = {"name": "dogs", "source": f"runs:/{run['run_id']}/m", "run_id": run["run_id"]}
    assert server.post("model-versions/create", named, **b).status == 200, "kept as text, like that of another server"
    place = server.send("GET", "model-versions/get-download-uri?name=dogs&version=1", **b).body["artifact_uri"]
    assert place == named["source"], "not where the files of a run of another project are"


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> RestCalls:
    """The hub, by its MLflow API."""
    return RestCalls(hub.port)


def test_secrets_are_masked(hub: RunningHub, server: RestCalls) -> None:
    """Descriptions, tags and sources are masked before they reach the disk."""
    tags = [{"key": "db_password", "value": "hunter2hunter2"}]
    server.post("registered-models/create", {"name": "hush", "tags": tags, "description": "password=swordfish9"})
    server.post("model-versions/create", {"name": "hush", "source": "s3://me:opensesame@bucket/m", "tags": tags})
    server.post("registered-models/set-tag", {"name": "hush", "key": "api_key", "value": "sk-hunter2hunter2"})
    found = server.get("registered-models/get", name="hush").body["registered_model"]
    assert {each["key"]: each["value"] for each in found["tags"]} == dict.fromkeys(
        ("api_key", "db_password"), "[redacted]"
    )
    data = (hub.home / "hub" / "files" / "mlflow" / "tracking.db-wal").read_bytes()
    assert not [word for word in (b"hunter2", b"swordfish9", b"opensesame") if word in data]


def test_a_version_of_a_local_folder(server: RestCalls, tmp_path: Path) -> None:
    """A folder of the hub's machine is a source only inside the artifacts of its run, which are there too."""
    made = server.post("experiments/create", {"name": "local", "artifact_location": str(tmp_path)}).body
    run = server.create_run(made["experiment_id"])
    uri = server.get("runs/get", run_id=run).body["run"]["info"]["artifact_uri"]
    server.post("registered-models/create", {"name": "local"})
    sources = {f"{uri}/model": 200, f"file://{uri}/model": 200, f"{uri}/../../x": 400, f"{uri}x": 400, "/etc": 400}
    for source, status in sources.items():
        answer = server.post("model-versions/create", {"name": "local", "source": source, "run_id": run})
        assert answer.status == status, source


def test_the_number_of_a_deleted_version_is_not_given_again(server: RestCalls) -> None:
    """A deleted version is found by nobody, and its aliases are gone; a deleted model begins at 1 again."""
    for name in ("gone", "stays"):
        server.post("registered-models/create", {"name": name})
        server.post("model-versions/create", {**VERSION, "name": name})
    server.post("registered-models/alias", {"name": "gone", "alias": "best", "version": "1"})
    assert server.send("DELETE", "model-versions/delete", b'{"name": "gone", "version": "1"}').status == 200
    assert "aliases" not in server.get("registered-models/get", name="gone").body["registered_model"]
    made = server.post("model-versions/create", {**VERSION, "name": "gone"})
    assert made.body["model_version"]["version"] == "2"
    assert server.send("DELETE", "registered-models/delete", b'{"name": "gone"}').status == 200
    assert server.get("registered-models/get", name="gone").status == 404
    server.post("registered-models/create", {"name": "gone"})
    assert server.post("model-versions/create", {**VERSION, "name": "gone"}).body["model_version"]["version"] == "1"
    assert server.get("model-versions/get", name="stays", version="1").status == 200
