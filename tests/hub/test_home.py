"""A hub whose folder goes away under it: nothing is acknowledged, it says why, and nothing is stranded."""

import os
import shutil
from pathlib import Path

import pytest

from stepscope.hub.home import HubHome
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import StartHub, stored_columns


def test_moved_home(start_hub: StartHub, tmp_path: Path) -> None:
    """While it is elsewhere the answer is 503 and health says why; moved back, all that was acknowledged is stored."""
    hub = start_hub()
    assert hub.post("/v1/metrics", bodies.points(10, run="r")).status == 200
    hub.wait_stored("otlp_http", 10)
    hub.home.rename(tmp_path / "moved")
    health = hub.health()
    assert (health["status"], str(hub.home) in health["trouble"]) == ("degraded", True)
    answer = hub.post("/v1/metrics", bodies.points(10, run="r", first=10))
    assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True)
    assert not hub.home.exists()
    (tmp_path / "moved").rename(hub.home)
    assert hub.post("/v1/metrics", bodies.points(10, run="r", first=10)).status == 200
    hub.wait_stored("otlp_http", 20)
    assert hub.health()["status"] == "ok"
    assert hub.stop() == 0
    found = stored_columns(hub.home, "SELECT step FROM metrics ORDER BY step")
    assert [int(step) for step in found["step"]] == list(range(20))


def test_deleted_home(start_hub: StartHub) -> None:
    """It is not made anew by the hub that lost it, which ends well; the next one begins there."""
    hub = start_hub()
    assert hub.post("/v1/metrics", bodies.points(10, run="r")).status == 200
    shutil.rmtree(hub.home)
    assert hub.post("/v1/metrics", bodies.points(10, run="r")).status == 503
    assert hub.stop() == 0
    assert not hub.home.exists()
    hub.start()
    assert hub.post("/v1/metrics", bodies.points(10, run="r")).status == 200
    hub.wait_stored("otlp_http", 10)


def test_journal_left_behind(start_hub: StartHub) -> None:
    """A folder with nothing but a hub's journal and cursors in it is taken over, and the journal is stored."""
    hub = start_hub()
    assert hub.post("/v1/metrics", bodies.points(10, run="r")).status == 200
    hub.wait_stored("otlp_http", 10)
    assert hub.stop() == 0
    folder = hub.home / "hub"
    shutil.rmtree(folder / "store")
    (folder / "STEPSCOPE_HUB").unlink()
    assert {"journal", "cursors"} <= set(os.listdir(folder)) <= {"alerts.log", "files", "journal", "cursors", "lock"}
    hub.start()
    hub.wait_stored("otlp_http", 10)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_trouble(tmp_path: Path, how: str) -> None:
    """A folder counts as ours as long as the lock we hold is the one at its path."""
    place = HubHome(tmp_path / "home")
    assert place.problem() == ""
    shutil.rmtree(place.home)
    second = HubHome(place.home) if how == "replaced" else None
    assert str(place.folder) in place.problem()
    if second is not None:
        assert second.problem() == ""
        second.close()
    place.close()
