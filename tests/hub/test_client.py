"""Which run is meant, of a hub and of the journals beside it."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub import client as clients
from stepscope.hub.client import (
    RUNS,
    HttpClient,
    HubClient,
    await_hub,
    expand_latest,
    find_anywhere,
    open_client,
    open_http_client,
    resolve_run,
)
from stepscope.hub.home import HubHome
from stepscope.journal.layout import address_of
from stepscope.journal.resolve_run import PROBES, UnknownRun
from stepscope.model.errors import ConfigError
from tests.cli.journals import SECOND, START, metric, write
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until


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


def test_a_hub_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    """Until it has an address, or a command is done; what has the folder open for longer is named by its pid."""
    place, waits = HubHome(tmp_path), list[float]()

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            place.announce("http://127.0.0.1:1")
        assert len(waits) <= 3

    await_hub(tmp_path, pause=pause)
    assert (len(waits), address_of(tmp_path)) == (3, "http://127.0.0.1:1")
    place.close()
    await_hub(tmp_path, pause=pause)
    place, seconds = HubHome(tmp_path), itertools.count(0.0, 10.0)
    await_hub(tmp_path, clock=lambda: next(seconds), pause=lambda seconds: None)
    with pytest.raises(ConfigError, match=rf"another hub that is starting, or a command \(pid {os.getpid()}\), has"):
        HubHome(tmp_path)
    place.close()


@pytest.fixture(scope="module")
def beside(hub: RunningHub) -> HttpClient:
    """The way to a running hub with a run that it has read, and one that it received later."""
    write(hub.home, "read", [metric(1, loss=1.0)], name="base")
    found = open_http_client(hub.home)
    assert found is not None
    wait_until(lambda: [row["id"] for row in found.get(RUNS)["runs"]] == ["read"])
    receive(hub, "received", START + 60 * SECOND)
    wait_until(lambda: len(found.get(RUNS)["runs"]) == 2)
    return found


def receive(hub: RunningHub, run: str, time: int) -> None:
    """Send a value of a run over OTLP."""
    point = {"timeUnixNano": str(time), "asDouble": 1.0}
    scope = {"scope": {}, "metrics": [{"name": "loss", "gauge": {"dataPoints": [point]}}]}
    named = [{"key": "train.run.id", "value": {"stringValue": run}}]
    sent = {"resourceMetrics": [{"resource": {"attributes": named}, "scopeMetrics": [scope]}]}
    assert hub.post("/v1/metrics", json.dumps(sent).encode(), "application/json").status == 200


def test_latest_is_the_same_run_for_journals_and_for_the_hub(hub: RunningHub, beside: HttpClient) -> None:
    """A run that the hub received later is the latest for commands that read journals too, and no other."""
    assert resolve_run(beside, hub.home, "latest") == "received"
    assert expand_latest(hub.home, "latest") == "received"
    assert find_anywhere(hub.home, "latest") == "received"
    assert [find_anywhere(hub.home, text) for text in ("read", "base", "received", "rec")] == [
        "read", "read", "received", "received",
    ]  # fmt: skip


def test_a_run_that_the_hub_has_not_read_yet_is_the_latest_and_waited_for(hub: RunningHub, beside: HttpClient) -> None:
    """A run that begins while the hub runs is found by it, in a limited time; without patience the answer says why."""
    write(hub.home, "fresh", [metric(1, loss=1.0)], name="new", wall_ns=START + 120 * SECOND)
    with pytest.raises(UnknownRun, match=r"no run 'new' at .* yet: the hub (has not|is still) read"):
        resolve_run(beside, hub.home, "new", patience=0.0)
    assert expand_latest(hub.home, "latest") == "fresh"
    assert resolve_run(beside, hub.home, "new", patience=300.0) == "fresh"
    with pytest.raises(UnknownRun, match="no run 'zzz'"):
        resolve_run(beside, hub.home, "zzz")
