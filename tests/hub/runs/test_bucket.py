"""Uploaded files in a bucket, against an S3 server in a process of its own, with kills of the hub in between."""

import hashlib
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.runs.bucket import Bucket, RemoteBlobs
from stepscope.model import names
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Record
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.views.recorded import native

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("moto") is None or importlib.util.find_spec("obstore") is None,
    reason="moto or obstore is not installed",
)
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
ADDRESS = "s3://files/of/hub"


class S3:
    """An S3 server that can be started late and stopped; what it holds goes with it."""

    def __init__(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port: int = taken.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """What a hub needs to reach it."""
        return {**KEYS, "AWS_ENDPOINT": f"http://127.0.0.1:{self.port}"}

    def start(self) -> None:
        """Start it and create the bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self._ask("PUT", "/files") == 200, seconds=300)

    def held(self) -> list[str]:
        """The keys of all objects."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/files?list-type=2", headers={"Authorization": "AWS a:b"})
        text = connection.getresponse().read().decode()
        return [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)

    def _ask(self, method: str, path: str) -> int:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request(method, path, headers={"Authorization": "AWS a:b"})
            return connection.getresponse().status
        except OSError:
            return 0


@pytest.fixture
def server() -> Iterator[S3]:
    """A server that is not started yet."""
    made = S3()
    yield made
    made.stop()


def blob(number: int, size: int = 300_000) -> bytes:
    """Some content that no other has."""
    return f"{number}\n".encode() * (size // len(f"{number}\n"))


def upload(hub: RunningHub, run: str, contents: list[bytes]) -> list[str]:
    """Send files of a run and the records that name them; return the names under which they are read."""
    now = time.time_ns()
    records: list[Record] = [Event(now, None, None, None, None, 9, names.EVENT_STARTED, {})]
    found = []
    for number, data in enumerate(contents):
        digest = hashlib.sha256(data).hexdigest()
        answer = hub.request("PUT", f"/v1/stepscope/blobs/{run}/{digest}", data)
        assert answer.status == 200, answer.body
        attrs = {"key": "out", "kind": "file", "sha256": digest, "size": len(data), "name": f"{number}.txt"}
        records.append(Event(now, number, None, None, None, 9, names.EVENT_MEDIA, attrs))
        found.append(f"media/{digest}/{number}.txt")
    records.append(Event(now + 1, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "finished"}))
    writer = Writer(id=f"of-{run}", run=run, project="p", wall_ns=now)
    assert hub.post("/v1/stepscope", native([Batch(writer, 1, records)]), "application/octet-stream").status == 200
    wait_until(lambda: hub.request("GET", f"/api/runs/{run}/files").status == 200)
    return found


def at(run: str, name: str, what: str = "content") -> str:
    """The address of a file."""
    return f"/api/runs/{run}/files/{what}?name={urllib.parse.quote(name)}"


def here(hub: RunningHub) -> list[str]:
    """The digests of the files that are still in the folder of the hub."""
    return [path.name for path in (hub.home / "hub" / "files" / "media").rglob("*") if len(path.name) == 64]


def health(hub: RunningHub) -> dict[str, Any]:
    """What the hub says about itself."""
    found: dict[str, Any] = json.loads(hub.request("GET", "/api/health").body)
    return found


def test_an_outage_and_a_kill_lose_nothing_that_was_accepted(server: S3, tmp_path: Path) -> None:
    """Files stay in the hub until the bucket has them: it is down at first, then the hub is killed while it moves."""
    contents = [blob(number) for number in range(40)]
    hub = RunningHub(tmp_path / "home", ("--blobs", ADDRESS), server.env).start()
    try:
        named = upload(hub, "far", contents)
        wait_until(lambda: "check AWS_REGION, AWS_ENDPOINT and the network" in health(hub)["trouble"], seconds=300)
        assert len(here(hub)) == 40
        assert hub.request("GET", at("far", named[3])).body == contents[3]
        hub.kill()
        server.start()
        hub.start()
        wait_until(lambda: len(server.held()) > 2, seconds=300)
        hub.kill()
        hub.start()
        wait_until(lambda: not here(hub), seconds=300)
        assert sorted(server.held()) == sorted(f"of/hub/far/{hashlib.sha256(each).hexdigest()}" for each in contents)
        assert [hub.request("GET", at("far", name)).body for name in named] == contents
        wait_until(lambda: health(hub)["trouble"] == "", seconds=300)
    finally:
        hub.kill()


def test_files_of_a_bucket_are_read_like_others(server: S3, tmp_path: Path) -> None:
    """Lists, texts, whole files and ranges; a file that is there is not sent again; a deleted run has no objects."""
    server.start()
    hub = RunningHub(tmp_path / "home", ("--blobs", ADDRESS), server.env).start()
    try:
        contents = [blob(7, 3_000_000), b"", b"a,b\n1,2\n"]
        named = upload(hub, "read", contents)
        other = upload(hub, "kept", [blob(8)])
        wait_until(lambda: not here(hub), seconds=300)
        listed = json.loads(hub.request("GET", "/api/runs/read/files").body)["files"]
        assert {each["name"]: each["bytes"] for each in listed} == {
            name: len(data) for name, data in zip(named, contents, strict=True)
        }
        assert "missing" not in {each["kind"] for each in listed}
        for name, data in zip(named, contents, strict=True):
            assert hub.request("GET", at("read", name)).body == data
        assert json.loads(hub.request("GET", at("read", named[0], "text")).body)["bytes"] == len(contents[0])
        for wanted, start, end in (
            ("bytes=5-14", 5, 15),
            ("bytes=2097150-", 2097150, len(contents[0])),
            ("bytes=-9", len(contents[0]) - 9, len(contents[0])),
        ):
            part = hub.request("GET", at("read", named[0]), headers={"Range": wanted})
            assert (part.status, part.body) == (206, contents[0][start:end])
            assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{len(contents[0])}"
        assert hub.request("GET", at("read", named[0]), headers={"Range": "bytes=9999999-"}).status == 416
        digest = hashlib.sha256(contents[0]).hexdigest()
        assert hub.request("HEAD", f"/v1/stepscope/blobs/read/{digest}").status == 200
        assert hub.request("HEAD", f"/v1/stepscope/blobs/kept/{digest}").status == 404
        assert hub.request("GET", at("kept", named[0])).status == 404
        assert hub.request("DELETE", "/api/runs/read").status == 200
        wait_until(lambda: [key.split("/")[2] for key in server.held()] == ["kept"], seconds=300)
        assert hub.request("GET", at("kept", other[0])).body == blob(8)
        server.stop()
        hub.kill()
        hub.start()
        refused = hub.request("GET", at("kept", other[0]))
        assert refused.status == 503
        assert b"AWS_ENDPOINT" in refused.body
    finally:
        hub.kill()


@pytest.fixture
def bucket(server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteBlobs:
    """Blobs of a folder and a bucket, without a hub."""
    server.start()
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return RemoteBlobs(Bucket(ADDRESS), tmp_path)


def local(folder: Path, run: str, data: bytes) -> Path:
    """Write a blob as the receiver does."""
    digest = hashlib.sha256(data).hexdigest()
    path = folder / run / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_run_deleted_while_its_file_is_stored_leaves_no_object(
    server: S3, bucket: RemoteBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was deleted here in the meantime is removed there."""
    path = local(tmp_path, "gone", b"x" * 10)
    put = bucket.bucket.put

    def put_late(key: str, at: Path) -> None:
        put(key, at)
        path.unlink()

    monkeypatch.setattr(bucket.bucket, "put", put_late)
    bucket.work()
    assert server.held() == []


def test_a_removal_waits_for_the_bucket(server: S3, bucket: RemoteBlobs, tmp_path: Path) -> None:
    """It is noted on disk, and done by the next hub; a run that has no objects has nothing to wait for."""
    path = local(tmp_path, "old", b"x" * 10)
    bucket.work()
    assert not path.exists()
    assert len(server.held()) == 1
    found = bucket.find("old", path.name)
    assert found is not None
    assert found.read(0, 4) == b"xxxx"
    bucket.expect_removal("old", time.time_ns() + 10**10)
    bucket.expect_removal("never", time.time_ns())
    RemoteBlobs(Bucket(ADDRESS), tmp_path).work()
    assert server.held() == []
    assert sorted(os.listdir(tmp_path / "old")) == [path.parent.name]
    assert not (tmp_path / "never").exists()


def test_errors_say_what_to_do(server: S3, bucket: RemoteBlobs, tmp_path: Path) -> None:
    """An address that is none, and a bucket that is not there; the file stays."""
    for wrong in ("gs://files", "s3://", "s3://A_B/x", "/tmp/files"):
        with pytest.raises(ConfigError, match="write s3://bucket/prefix"):
            Bucket(wrong)
    path = local(tmp_path, "far", b"x")
    with pytest.raises(OSError, match="there is no bucket s3://other; create it, or correct --blobs"):
        RemoteBlobs(Bucket("s3://other"), tmp_path).work()
    assert path.exists()
