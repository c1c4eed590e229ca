"""A hub with its store to itself runs without the code for several hubs and for clusters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.conftest import RunningHub
from tests.hub.otlp_bodies import points

LISTING = """
import runpy, sys
from pathlib import Path
out = Path(sys.argv.pop(1))
try:
    runpy.run_module("stepscope", run_name="__main__", alter_sys=True)
finally:
    out.write_text("\\n".join(sorted(sys.modules)))
"""
"""Runs `stepscope ARGUMENTS`, and writes the names of the modules that it imported at its end."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub that writes down its modules."""
    pytest.importorskip("tests.chdb")
    running = RunningHub(tmp_path / "home", program=("-c", LISTING, str(tmp_path / "modules"))).start()
    yield running
    if running.process is not None and running.process.poll() is None:
        running.kill()


def test_a_single_hub_imports_nothing_of_it(hub: RunningHub, tmp_path: Path) -> None:
    """A hub that ingests, stores and answers has imported no module of the fleet and of clusters."""
    assert hub.post("/v1/metrics", points(3)).status == 200
    hub.wait_stored("otlp_http", 3)
    assert hub.request("GET", "/api/runs/r/series?key=loss").json()["series"]
    for path in ("/api/dashboards", "/api/alerts", "/metrics", "/"):
        assert hub.request("GET", path).status == 200
    assert hub.stop() == 0
    modules = (tmp_path / "modules").read_text().split()
    assert "stepscope.hub.store.embedded" in modules
    apart = ("stepscope.hub.fleet", "stepscope.hub.store.cluster", "clickhouse_driver")
    assert [each for each in modules if each.startswith(apart)] == []
