"""`stepscope quarantine`: what sinks and the hub's own store refused, and to whom it is offered again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.cli.main import main
from stepscope.hub.intake.store_pump import SINK
from stepscope.journal.quarantine import Quarantine
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Span
from stepscope.sinks.hub import Hub
from stepscope.sinks.registry import parse
from tests.hub.conftest import StartHub, start_hub, stored_columns
from tests.sinks.test_hub import HubPeer

__all__ = ["start_hub"]

WRITER = Writer(id="w", run="run", project="p", wall_ns=1_790_000_000_000_000_000)
T = WRITER.wall_ns
GOOD = Metric(T, 1, None, "trainer", {"loss": 0.5})
BAD = Span(T, 5, 1, None, b"short", b"too", None, "span")


@pytest.fixture
def peers() -> Iterator[list[HubPeer]]:
    """Two servers that speak a hub's protocol."""
    made = [HubPeer(), HubPeer()]
    yield made
    for each in made:
        each.stop()


def listed(home: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What `list --json` says."""
    capsys.readouterr()
    assert main(["quarantine", "list", "--home", str(home), "--json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def steps(home: Path) -> list[int]:
    """The steps of the stored points."""
    return sorted(stored_columns(home, "SELECT step FROM metrics")["step"])


def test_what_the_store_refuses_is_shown_and_kept(
    start_hub: StartHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record that can never be stored is in quarantine with the reason, its neighbours are stored; it stays there."""
    hub = start_hub()
    sink = Hub(url=hub.url).open()
    sink.write([Batch(WRITER, 0, [GOOD, BAD])])
    sink.close()
    hub.wait_stored("native", 1)
    (entry,) = listed(hub.home, capsys)
    assert (entry["sink"], entry["run"], entry["records"]) == (SINK, "run", 1)
    assert "bytes long" in str(entry["reason"])
    assert hub.health()["receivers"]["native"]["rejected"] == {entry["reason"]: 1}
    assert hub.stop() == 0
    assert main(["quarantine", "--home", str(hub.home), "show", str(entry["id"])]) == 0
    assert '"span"' in capsys.readouterr().out
    for _ in range(2):
        assert main(["quarantine", "--home", str(hub.home), "retry"]) == 1
        assert [each["records"] for each in listed(hub.home, capsys)] == [1]
    assert steps(hub.home) == [1]


def test_a_damaged_lot_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read any more is listed as that, and neither shown nor offered."""
    aside = Quarantine(tmp_path, SINK)
    aside.set_aside(Batch(WRITER, 0, [GOOD]), "refused")
    (path,) = tmp_path.rglob("*.lot")
    path.write_bytes(path.read_bytes()[:-5])
    (row,) = listed(tmp_path, capsys)
    assert "damaged" in str(row["reason"]) or "unreadable" in str(row["reason"]), row
    for verb in ("show", "retry"):
        assert main(["quarantine", verb, str(row["id"]), "--home", str(tmp_path)]) == 2
        assert str(row["reason"]) in capsys.readouterr().err


@pytest.mark.parametrize("running", [True, False])
def test_retry_stores_once(
    start_hub: StartHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """What was set aside goes to the hub that runs, or to the store itself; the number it had counts no more."""
    hub = start_hub()
    sink = Hub(url=hub.url).open()
    sink.write([Batch(WRITER, 0, [GOOD])])
    sink.close()
    hub.wait_stored("native", 1)
    aside = Quarantine(hub.home, SINK)
    again = Metric(T + 1, 2, None, "trainer", {"loss": 0.25})
    aside.set_aside(Batch(WRITER, 0, [again]), "the store stumbled")
    (entry,) = aside.entries()
    if not running:
        assert hub.stop() == 0
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "discard", lambda self, entry: None)  # killed before the entry could be deleted
        assert main(["quarantine", "--home", str(hub.home), "retry"]) == 0
    capsys.readouterr()
    assert main(["quarantine", "--home", str(hub.home), "retry", entry.id, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["id"], said["records"], said["taken"]) == (entry.id, 1, True)
    assert listed(hub.home, capsys) == []
    if running:
        hub.wait_stored("native", 3)
        assert hub.stop() == 0
    assert steps(hub.home) == [1, 2]


def test_a_sink_that_is_gone_keeps_no_other_from_its_entries(
    tmp_path: Path, peers: list[HubPeer], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three sinks of one type, two with changed or deleted settings: the third gets what it refused."""
    wishes = [{"hub": {"url": url}} for url in ("http://127.0.0.1:9", peers[0].url, "http://gone.invalid")]
    for number, wish in enumerate(wishes):
        Quarantine(tmp_path, parse([wish])[0].id).set_aside(Batch(WRITER, number, [GOOD]), "not you")
    monkeypatch.setenv("STEPSCOPE_SINKS", json.dumps([wishes[1]]))
    assert main(["quarantine", "--home", str(tmp_path), "retry", "--json"]) == 1
    said = {each["sink"]: each for each in json.loads(capsys.readouterr().out)}
    ids = [parse([wish])[0].id for wish in wishes]
    assert [said[name]["taken"] for name in ids] == [False, True, False]
    assert "no longer known: give them with --sink" in said[ids[0]]["reason"]
    assert {each["sink"] for each in listed(tmp_path, capsys)} == {ids[0], ids[2]}
    assert len(peers[0].steps()) == 1


def test_a_sink_gets_only_what_it_refused(
    tmp_path: Path, peers: list[HubPeer], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another hub's entries stay, whether the sink is named by its name, its options or its id."""
    wishes = [{"hub": {"url": peer.url}} for peer in peers]
    ids = [parse([wish])[0].id for wish in wishes]
    for number, name in enumerate(ids):
        Quarantine(tmp_path, name).set_aside(Batch(WRITER, number, [GOOD]), "not you")
    Quarantine(tmp_path, SINK).set_aside(Batch(WRITER, 2, [GOOD]), "no place")
    retry = ["quarantine", "--home", str(tmp_path), "retry", "--sink"]
    monkeypatch.setenv("STEPSCOPE_HUB_URL", peers[0].url)
    assert main([*retry, "hub"]) == 0
    assert [len(peer.steps()) for peer in peers] == [1, 0]
    assert {each["sink"] for each in listed(tmp_path, capsys)} == {ids[1], SINK}
    assert main([*retry, json.dumps([wishes[0]])]) == 2
    assert f"name one with --sink ({ids[1]}, {SINK})" in capsys.readouterr().err
    assert main([*retry, ids[1]]) == 2
    assert f"the options of {ids[1]} are no longer known" in capsys.readouterr().err
    monkeypatch.setenv("STEPSCOPE_SINKS", json.dumps([wishes[1]]))
    assert main([*retry, ids[1]]) == 0
    assert [len(peer.steps()) for peer in peers] == [1, 1]
    assert {each["sink"] for each in listed(tmp_path, capsys)} == {SINK}
