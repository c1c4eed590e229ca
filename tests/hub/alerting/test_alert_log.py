"""The file of alerts: what was written survives, whatever happens to the rest."""

from pathlib import Path

import pytest

from stepscope.alerts.alert import Alert, Expected, Silence, Subject
from stepscope.hub.alerting.alert_log import MAX_RESOLVED, NAME, AlertLog
from stepscope.model.errors import Retry


def alert(number: int = 1, state: str = "firing") -> Alert:
    """An alert that changed at `number`."""
    return Alert(
        id=f"a{number}",
        subject=Subject("high", "r1", "loss", 0),
        state=state,  # type: ignore[arg-type]
        began=number,
        changed=number,
        snapshot={"values": {"x": [1]}},
    )


def test_everything_is_there_again(tmp_path: Path) -> None:
    """Alerts, silences and marks are read back as they were last written; removed ones are gone."""
    log = AlertLog(tmp_path)
    log.keep([alert(1), alert(2)])
    log.keep([alert(1, "resolved"), alert(2, "inactive")])
    log.add(Silence(id="s1", until=5))
    log.add(Silence(id="s2", until=5))
    log.add(Expected(id="e1", rule="high", run="r1"))
    log.remove("s2")
    again = AlertLog(tmp_path)
    assert {id: each.state for id, each in again.alerts.items()} == {"a1": "resolved"}
    assert again.alerts["a1"].snapshot == {"values": {"x": [1]}}
    assert (list(again.silences), list(again.expected)) == (["s1"], ["e1"])


def test_a_torn_or_damaged_entry_costs_itself(tmp_path: Path) -> None:
    """A file cut at any byte, or with a flipped one, gives back the entries before and after."""
    log = AlertLog(tmp_path)
    log.keep([alert(1)])
    first = (tmp_path / NAME).stat().st_size
    log.keep([alert(2)])
    log.keep([alert(3)])
    data = (tmp_path / NAME).read_bytes()
    for cut in range(first, len(data), 7):
        (tmp_path / NAME).write_bytes(data[:cut])
        assert "a1" in AlertLog(tmp_path).alerts
    (tmp_path / NAME).write_bytes(data[: first + 20] + b"\xff" + data[first + 21 :])
    assert {"a1", "a3"} <= set(AlertLog(tmp_path).alerts)


def test_a_disk_that_takes_nothing_is_reported_and_caught_up(tmp_path: Path) -> None:
    """While the folder is missing the error is reported; unwritten entries are written with the next change."""
    folder = tmp_path / "hub"
    folder.mkdir()
    log = AlertLog(folder)
    (folder / NAME).unlink()
    folder.rmdir()
    log.keep([alert(1)])
    assert "cannot be written" in log.problem
    folder.mkdir()
    log.keep([alert(2)])
    assert log.problem == ""
    assert set(AlertLog(folder).alerts) == {"a1", "a2"}


def test_what_a_person_asked_for_is_written_or_refused(tmp_path: Path) -> None:
    """A silence, a mark, an acknowledgement and a removal that the disk does not take are refused, and not held."""
    folder = tmp_path / "hub"
    folder.mkdir()
    log = AlertLog(folder)
    log.keep([alert(1)])
    log.add(Silence(id="s1", until=5))
    kept = (folder / NAME).read_bytes()
    (folder / NAME).unlink()
    folder.rmdir()
    for ask in (
        lambda: log.add(Silence(id="s2", until=5)),
        lambda: log.add(Silence(id="s1", until=9)),
        lambda: log.add(Expected(id="e1", rule="high", run="r1")),
        lambda: log.acknowledge(log.alerts["a1"], "ann", 7),
        lambda: log.remove("s1"),
    ):
        with pytest.raises(Retry, match="cannot be written"):
            ask()
    assert (list(log.silences), log.silences["s1"].until, list(log.expected)) == (["s1"], 5, [])
    assert (log.alerts["a1"].acknowledged_by, log.alerts["a1"].acknowledged) == ("", 0)
    folder.mkdir()
    (folder / NAME).write_bytes(kept)
    log.keep([alert(2)])
    again = AlertLog(folder)
    assert (list(again.silences), list(again.expected), again.alerts["a1"].acknowledged) == (["s1"], [], 0)
    log.add(Expected(id="e1", rule="high", run="r1"))
    assert list(AlertLog(folder).expected) == ["e1"]


def test_old_ones_are_forgotten(tmp_path: Path) -> None:
    """A bounded number of alerts that are over is kept; open ones always are."""
    log = AlertLog(tmp_path)
    log.keep([alert(0), *(alert(number, "resolved") for number in range(1, MAX_RESOLVED + 10))])
    kept = AlertLog(tmp_path).alerts
    assert len(kept) == MAX_RESOLVED + 1
    assert "a0" in kept
    assert "a1" not in kept
