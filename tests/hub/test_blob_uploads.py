"""Files that trainers elsewhere logged: asked for with HEAD, uploaded with PUT, verified, and gone with their run."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.journal.blobs import find_blob
from tests.conftest import PACKAGE, Python
from tests.hub.conftest import RunningHub, StartHub

DATA = bytes(range(256)) * 12_000
DIGEST = hashlib.sha256(DATA).hexdigest()
AT = f"/v1/stepscope/blobs/far/{DIGEST}"


def kept(hub: RunningHub, run: str = "far") -> list[Path]:
    """The files that the hub keeps of a run."""
    return [path for path in (hub.home / "hub" / "files" / "media" / run).rglob("*") if path.is_file()]


def test_head_then_put(start_hub: StartHub) -> None:
    """A hub says what it has, takes what has the digest that it is named by, and keeps nothing else."""
    hub = start_hub()
    assert hub.request("HEAD", AT).status == 404
    wrong = hub.request("PUT", AT, DATA[:-1])
    assert (wrong.status, "SHA-256" in wrong.json()["error"]["message"]) == (400, True)
    assert (hub.request("HEAD", AT).status, kept(hub)) == (404, [])
    for _ in range(2):
        assert hub.request("PUT", AT, DATA).json() == {"sha256": DIGEST}
    assert hub.request("HEAD", AT).status == 200
    assert [path.read_bytes() for path in kept(hub)] == [DATA]
    assert hub.request("HEAD", AT.replace("far", "other")).status == 404


@pytest.mark.parametrize("path", ["far/abc", f"far/{DIGEST.upper()}", f"..%2Ffar/{DIGEST}", f".far/{DIGEST}"])
def test_odd_addresses_are_refused(start_hub: StartHub, path: str) -> None:
    """A run id that is no folder name, and what is no digest."""
    hub = start_hub()
    for method in ("HEAD", "PUT"):
        assert hub.request(method, f"/v1/stepscope/blobs/{path}", b"x").status in (400, 404, 405)
    assert not (hub.home / "hub" / "files" / "media").exists()


def test_two_at_once(start_hub: StartHub) -> None:
    """Two clients that send the same file at once leave one, whole."""
    hub = start_hub()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(hub.request("PUT", AT, DATA).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 4
    assert [path.read_bytes() for path in kept(hub)] == [DATA]


TRAIN = """
    import numpy, stepscope
    run = stepscope.init(project="p", otel=False, shipper="none")
    for step in range(6):
        run.log({"image": stepscope.Image(numpy.full((16, 16), step % 3, numpy.uint8)), "loss": 1.0}, step=step)
    run.log({"file": stepscope.File(b"x" * 100, name="notes.txt")}, step=9)
    run.finish(timeout=300)
"""


def ship(home: Path, hub: RunningHub) -> dict[str, object]:
    """Run the shipper until all is delivered."""
    sink = json.dumps([{"hub": {"url": hub.url}}])
    line = [sys.executable, "-m", "stepscope", "ship", "--home", str(home), "--sink", sink, "--json"]
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_trainer_elsewhere(
    python: Python, home: Path, tmp_path: Path, start_hub: StartHub, until: Callable[..., None]
) -> None:
    """The shipper sends each file once and before its record; the far hub shows it, and deletes it with the run."""
    assert python(TRAIN).returncode == 0
    hub = start_hub(home=tmp_path / "hub")
    assert ship(home, hub)["delivered"] is True
    until(lambda: len(hub.request("GET", "/api/runs/e2e/media").json().get("media", ())) == 7)
    assert len(kept(hub, "e2e")) == 4
    for each in hub.request("GET", "/api/runs/e2e/media").json()["media"]:
        name = each["files"][0]["name"]
        answer = hub.request("GET", f"/api/runs/e2e/files/content?name={name}")
        assert hashlib.sha256(answer.body).hexdigest() == name.split("/")[1]
    assert hub.request("DELETE", "/api/runs/e2e").status == 200
    assert kept(hub, "e2e") == []


def test_a_record_whose_file_is_gone_is_set_aside(
    python: Python, home: Path, tmp_path: Path, start_hub: StartHub, until: Callable[..., None]
) -> None:
    """It is not sent without its file: the others are delivered, and this one is in quarantine with the reason."""
    assert python(TRAIN).returncode == 0
    digest = hashlib.sha256(b"x" * 100).hexdigest()
    path = find_blob(home, "e2e", digest)
    assert path is not None
    path.unlink()
    hub = start_hub(home=tmp_path / "hub")
    ship(home, hub)
    until(lambda: len(hub.request("GET", "/api/runs/e2e/media").json().get("media", ())) == 6)
    said = b"".join(path.read_bytes() for path in (home / "quarantine").rglob("*") if path.is_file())
    assert b"gone" in said
