"""Which run of a hub is meant."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub import client
from stepscope.hub.client import Door, open_door
from stepscope.journal.resolve_run import PROBES, UnknownRun
from tests.cli.journals import SECOND, START, metric, write


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The way to the store of four runs, that of the doctor's probes the newest."""
    home = tmp_path_factory.mktemp("home")
    for age, run in enumerate((PROBES, "new", "newer", "old")):
        write(home, run, [metric(1, loss=1.0)], name=run.upper(), wall_ns=START - age * SECOND)
    with open_door(home) as opened:
        yield opened


def test_a_run_is_found_by_id_beginning_name_or_as_the_latest(door: Door) -> None:
    """As among journals; probes of the doctor are nobody's latest run."""
    found = {text: client.resolve_run(door, Path("home"), text) for text in ("latest", "new", "newe", "OLD")}
    assert found == {"latest": "new", "new": "new", "newe": "newer", "OLD": "old"}
    with pytest.raises(UnknownRun, match="no run 'x'"):
        client.resolve_run(door, Path("home"), "x")


def test_a_run_too_old_to_be_listed_is_found_by_its_id(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs a hub has, an id is an id."""
    monkeypatch.setattr(client, "MOST", 3)  # so that four runs are too many to be listed
    assert client.resolve_run(door, Path("home"), "old") == "old"
    assert client.resolve_run(door, Path("home"), "latest") == "new"
    with pytest.raises(UnknownRun, match="no run 'OLD'"):
        client.resolve_run(door, Path("home"), "OLD")
