"""Artifacts: what is uploaded is downloaded byte by byte, listed, deleted, and nothing outside is reached."""

import http.client
from pathlib import Path
from urllib.parse import quote

import pytest

from stepscope.dialects.mlflow.receiver.artifact_files import safe_path
from stepscope.hub.refusals import Refused
from stepscope.hub.security.tokens import Tokens
from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.hub.conftest import RunningHub, StartHub
from tests.hub.test_connections import wait_for

FILES = "/api/2.0/mlflow-artifacts/artifacts"


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> RestCalls:
    """The hub, by its MLflow API."""
    return RestCalls(hub.port)


def test_files_come_back_as_they_were_sent(hub: RunningHub, server: RestCalls) -> None:
    """A file of some megabytes, sent in parts without a length, is read again, by its path and as one of its run."""
    run = server.create_run()
    data = bytes(range(256)) * 20_000
    place = f"{FILES}/0/{run}/artifacts/model/weights%20v1.bin"
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=300)
    connection.request("PUT", place, iter([data[:100_000], data[100_000:]]), encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"{}")
    for path in (place, f"/get-artifact?run_id={run}&path=model%2Fweights%20v1.bin"):
        connection.request("GET", path)
        found = connection.getresponse()
        assert found.read() == data
        assert found.headers["content-disposition"].startswith("attachment")
    assert server.get("artifacts/list", run_id=run).body["files"] == [{"path": "model", "is_dir": True}]
    listed = server.get("artifacts/list", run_id=run, path="model").body["files"]
    assert listed == [{"path": "model/weights v1.bin", "is_dir": False, "file_size": len(data)}]
    assert server.send("DELETE", place).status == 200
    assert server.send("GET", place).status == 404


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "%2e%2e/x", "%252e%252e%252fx", "..%2fx", "/etc/passwd", "%2fetc%2fpasswd", "a/%00"),
        *("a%0ab", "\\\\host\\x", "c:\\x", "file:///etc/passwd", "a#b", f"%{'25' * 12}2e%{'25' * 12}2e/x", "a/" * 100),
    ],
)
def test_no_path_leads_out(server: RestCalls, path: str) -> None:
    """However a path is spelled or encoded, it is refused in MLflow's words, to read, write, list or delete."""
    with pytest.raises(Refused, match="Invalid path"):
        safe_path(path)
    for method in ("GET", "PUT", "DELETE"):
        answer = server.send(method, f"{FILES}/{quote(path, safe='%/')}", b"x" if method == "PUT" else None)
        assert answer.status in (400, 404), (method, answer)
    assert server.get(FILES, path=path).status == 400


def test_strange_names_are_refused_and_block_nothing(hub: RunningHub, server: RestCalls) -> None:
    """A name that is too long, a folder for a file and a file for a folder are 400, never a 5xx."""
    assert server.send("PUT", f"{FILES}/0/r/file", b"x").status == 200
    for path in ("0/r", "0/r/file/below", "n" * 300, "0/" + "n" * 300, ""):
        assert server.send("PUT", f"{FILES}/{path}", b"x").status == 400, path
    assert server.send("GET", f"{FILES}/0/r").status == 400
    assert server.send("DELETE", f"{FILES}/%2e").status == 400
    kept = [path for path in (hub.home / "hub" / "files" / "mlflow" / "artifacts").rglob("*") if path.is_file()]
    assert [path.name for path in kept if path.name.endswith("part")] == []


def test_a_token_of_a_project_reaches_its_own_files(start_hub: StartHub, tmp_path: Path) -> None:
    """It sees its runs, experiments and artifacts, and those of no other project; a password is as good as a bearer."""
    hub = start_hub()
    tokens = Tokens(hub.home / "hub" / "tokens.json")
    mine, other = (tokens.create(["ingest", "read"], project=name)[1] for name in ("mine", "other"))
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)
    server = RestCalls(hub.port)

    def ask(method: str, path: str, body: bytes | None, token: str) -> int:
        return server.send(method, path, body, authorization=f"Bearer {token}").status

    made = server.post("runs/create", {"experiment_id": "0"}, authorization=f"Bearer {mine}").body
    run = made["run"]["info"]["run_id"]
    file = f"{FILES}/0/{run}/artifacts/a.txt"
    assert [ask("PUT", file, b"x", token) for token in (mine, other)] == [200, 404]
    for path in (f"runs/get?run_id={run}", file, f"artifacts/list?run_id={run}", f"{FILES}?path=0/{run}"):
        assert [ask("GET", path, None, token) for token in (mine, other)] == [200, 404], path
    assert ask("GET", FILES, None, other) == 404
    small = f"/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=b.txt"
    assert [ask("POST", small, b"x", token) for token in (mine, other)] == [200, 404]
    used = [{"dataset": {"name": "n", "digest": "d", "source_type": "s", "source": "{}"}}]
    server.post("runs/log-inputs", {"run_id": run, "datasets": used}, authorization=f"Bearer {mine}")
    searched = [
        server.post("experiments/search-datasets", {"experiment_ids": ["0"]}, authorization=f"Bearer {token}").body
        for token in (mine, other)
    ]
    assert [len(each.get("dataset_summaries", ())) for each in searched] == [1, 0]
    server.post("experiments/create", {"name": "secret"}, authorization=f"Bearer {mine}")
    named = "experiments/get-by-name?experiment_name=secret"
    assert [ask("GET", named, None, token) for token in (mine, other)] == [200, 404]
    assert server.send("GET", named).status == 401


def test_a_token_replaces_no_artifact_of_another(start_hub: StartHub) -> None:
    """What exists is replaced by the token that stored it, also after a restart, or with the scope admin."""
    hub = start_hub()
    tokens = Tokens(hub.home / "hub" / "tokens.json")
    mine, other, reader = (tokens.create(scopes)[1] for scopes in (["ingest"], ["ingest"], ["ingest", "read"]))
    admin = tokens.create(["ingest", "read", "admin"])[1]
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)

    def ask(method: str, path: str, token: str, body: bytes | None = None) -> int:
        return RestCalls(hub.port).send(method, path, body, authorization=f"Bearer {token}").status

    def content() -> bytes:
        return bytes(RestCalls(hub.port).send("GET", file, authorization=f"Bearer {admin}").body)

    made = RestCalls(hub.port).post("runs/create", {"experiment_id": "0"}, authorization=f"Bearer {mine}").body
    file = f"{FILES}/0/{made['run']['info']['run_id']}/artifacts/model/MLmodel"
    assert ask("PUT", file, mine, b"first") == 200
    assert [ask("PUT", path, token, b"evil") for token in (other, reader) for path in (file, f"{file}/")] == [403] * 4
    assert content() == b"first"
    hub.stop()
    hub.start()
    assert ask("PUT", file, other, b"evil") == 403
    assert ask("PUT", file, mine, b"second") == 200
    assert content() == b"second"
    assert ask("PUT", file, admin, b"third") == 200
    assert ask("PUT", file, mine, b"fourth") == 403
    assert content() == b"third"
    assert ask("DELETE", file.rpartition("/")[0], admin) == 200
    assert ask("PUT", file, other, b"new") == 200
