"""Work that is done now and then."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import parser
from stepscope.hub.threads import Periodic
from stepscope.journal.blobs import find_blob
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub

_SOON = """
import sys
from stepscope.cli.main import main
from stepscope.hub.store import maintenance
from stepscope.hub.threads import Periodic

Periodic.__init__.__kwdefaults__.update(first=0.5, every=0.5)
maintenance.ALIVE_NS = 10**9
sys.exit(main())
"""
"""A hub that looks at once whether something is too old, not after a minute, and takes no hour for a sign of life."""


def test_goes_on() -> None:
    """A failure is logged and does not end the work; stopping ends it."""
    done = threading.Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("no")
        done.set()

    upkeep = Periodic(work, first=0.0, every=0.01)
    upkeep.start()
    assert done.wait(300)
    upkeep.stop()
    assert upkeep.problem == ""
    count = len(calls)
    assert not threading.Event().wait(0.05)
    assert len(calls) == count


def test_a_hub_keeps_what_it_is_told(tmp_path: Path, until: Callable[..., None]) -> None:
    """`--keep` deletes a run without recent records, and health counts it."""
    pytest.importorskip("tests.chdb")
    hub = RunningHub(tmp_path / "home", ("--keep", "3s"), program=("-c", _SOON)).start()
    try:
        assert hub.post("/v1/traces", bodies.spans(3, run="old")).status == 200
        until(lambda: [run["id"] for run in hub.request("GET", "/api/runs").json()["runs"]] == ["old"])
        until(lambda: hub.request("GET", "/api/runs").json()["runs"] == [])
        assert hub.health()["store"]["expired_runs"] == 1
        assert hub.stop() == 0
    finally:
        hub.kill()


def test_files_go_with_the_runs_that_are_too_old(tmp_path: Path, until: Callable[..., None]) -> None:
    """`--keep` deletes uploads, logged media and imported files of a run with its rows; its journal stays."""
    pytest.importorskip("tests.chdb")
    home = tmp_path / "home"
    run = stepscope.init(project="p", run_id="mine", home=home, probes=False, otel=False)
    run.log({"file": stepscope.File(b"logged", name="f"), "loss": 1.0}, step=0)
    assert run.finish(timeout=300)
    (home / "runs" / "mine" / "files").mkdir()
    (home / "runs" / "mine" / "files" / "a.png").write_bytes(b"imported")
    digest = hashlib.sha256(b"logged").hexdigest()
    assert find_blob(home, "mine", digest) is not None
    hub = RunningHub(home, ("--keep", "3s"), program=("-c", _SOON)).start()
    try:
        at = f"/v1/stepscope/blobs/mine/{digest}"
        assert hub.request("PUT", at, b"logged").status == 200
        assert hub.request("PUT", "/files/team/p/mine/weights.bin", b"uploaded").status == 200
        until(lambda: hub.health()["store"]["expired_runs"] == 1)
        until(lambda: find_blob(home, "mine", digest) is None and not (home / "runs" / "mine" / "files").exists())
        assert hub.request("HEAD", at).status == 404
        assert not list((home / "hub" / "files").rglob("weights.bin"))
        assert list((home / "runs" / "mine").rglob("*.seg"))
        assert hub.stop() == 0
    finally:
        hub.kill()


def test_how_much_is_kept_is_read() -> None:
    """`--keep` and `--max-bytes` are parsed with their usual units."""
    args = parser().parse_args(["hub", "--keep", "90d", "--max-bytes", "50GB"])
    assert (args.keep, args.max_bytes) == (90 * 86400, 50 * 10**9)
