"""A damaged store is reported to clients and in health, and never gives an incomplete answer."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb")

from stepscope.cli.main import main
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub, StartHub, stored_columns


@pytest.fixture
def hub(start_hub: StartHub) -> RunningHub:
    """A hub whose spans are damaged on the disk."""
    hub = start_hub()
    assert hub.post("/v1/traces", bodies.spans(200, run="r")).status == 200
    hub.wait_stored("otlp_http", 200)
    assert hub.stop() == 0
    (path,) = stored_columns(hub.home, "SELECT path FROM system.parts WHERE active AND table = 'spans'")["path"]
    with open(Path(path) / "data.bin", "r+b") as file:
        file.seek(file.seek(0, 2) // 2)
        file.write(b"\xff" * 16)
    return hub


def test_questions(hub: RunningHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is answered with one sentence and what to do, not with a promise; runs are still listed and counted."""
    hub.start()
    health = hub.health()
    assert (health["status"], health["runs"]) == ("ok", {"running": 1})
    asked = ("spans?run=r", *(f"runs/r/export?what=spans&format={kind}" for kind in ("csv", "jsonl", "parquet")))
    for path in asked:
        answer = hub.request("GET", f"/api/{path}")
        assert (answer.status, answer.headers.get("retry-after")) == (500, None), path
        assert "`stepscope store check`" in answer.json()["error"]["message"]
    answer = hub.request("POST", "/api/sql", json.dumps({"sql": "SELECT * FROM spans"}).encode())
    assert (answer.status, answer.headers.get("retry-after")) == (500, None)
    health = hub.health()
    assert (health["status"], "`stepscope store check`" in health["trouble"]) == ("degraded", True)
    assert [run["id"] for run in hub.request("GET", "/api/runs").json()["runs"]] == ["r"]
    assert hub.process is not None
    hub.process.terminate()
    _, said = hub.process.communicate(timeout=300)
    assert (hub.process.returncode, "Traceback" in said) == (0, False), said
    assert main(["store", "check", "--home", str(hub.home)]) == 1
    assert "spans: part" in capsys.readouterr().out


def test_parts_that_could_not_be_loaded(hub: RunningHub) -> None:
    """The engine puts them aside when it starts, and the hub says so from the beginning."""
    (path,) = stored_columns(hub.home, "SELECT path FROM system.parts WHERE active AND table = 'spans'")["path"]
    (Path(path) / "data.bin").unlink()
    hub.start()
    health = hub.health()
    assert health["status"] == "degraded"
    assert "1 parts of the store could not be loaded" in health["trouble"]
