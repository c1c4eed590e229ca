"""Which run of a hub is meant."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub import client as clients
from stepscope.hub.client import HubClient, open_client, resolve_run
from stepscope.journal.resolve_run import PROBES, UnknownRun
from tests.cli.journals import SECOND, START, metric, write


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubClient]:
    """The way to the store of four runs, that of the doctor's probes the newest."""
    home = tmp_path_factory.mktemp("home")
    for age, run in enumerate((PROBES, "new", "newer", "old")):
        write(home, run, [metric(1, loss=1.0)], name=run.upper(), wall_ns=START - age * SECOND)
    with open_client(home) as opened:
        yield opened


def test_a_run_is_found_by_id_beginning_name_or_as_the_latest(client: HubClient) -> None:
    """Runs are found as among journals; the doctor's probe runs are never `latest`."""
    found = {text: resolve_run(client, Path("home"), text) for text in ("latest", "new", "newe", "OLD")}
    assert found == {"latest": "new", "new": "new", "newe": "newer", "OLD": "old"}
    with pytest.raises(UnknownRun, match="no run 'x'"):
        resolve_run(client, Path("home"), "x")


def test_a_run_too_old_to_be_listed_is_found_by_its_id(client: HubClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is found by its id among any number of runs."""
    monkeypatch.setattr(clients, "MOST", 3)  # so that four runs are too many to be listed
    assert resolve_run(client, Path("home"), "old") == "old"
    assert resolve_run(client, Path("home"), "latest") == "new"
    with pytest.raises(UnknownRun, match="no run 'OLD'"):
        resolve_run(client, Path("home"), "OLD")
