"""Work that is done now and then."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.cli.main import parser
from stepscope.hub.threads import Periodic
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
    pytest.importorskip("chdb")
    hub = RunningHub(tmp_path / "home", ("--keep", "3s"), program=("-c", _SOON)).start()
    try:
        assert hub.post("/v1/traces", bodies.spans(3, run="old")).status == 200
        until(lambda: [run["id"] for run in hub.request("GET", "/api/runs").json()["runs"]] == ["old"])
        until(lambda: hub.request("GET", "/api/runs").json()["runs"] == [])
        assert hub.health()["store"]["expired_runs"] == 1
        assert hub.stop() == 0
    finally:
        hub.kill()


def test_how_much_is_kept_is_read() -> None:
    """`--keep` and `--max-bytes` are parsed with their usual units."""
    args = parser().parse_args(["hub", "--keep", "90d", "--max-bytes", "50GB"])
    assert (args.keep, args.max_bytes) == (90 * 86400, 50 * 10**9)
