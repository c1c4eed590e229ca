"""`stepscope diff`: what differs between two runs, from journals and from a hub alike."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.journal_answers import RUN, JournalAnswers
from stepscope.cli.main import main
from stepscope.model.names import EVENT_STARTED
from tests.cli.journals import SECOND, START, event, finished, later, metric, write
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]


def two(home: Path) -> int:
    """Write two runs that differ in a setting, a commit, a package, the Python and their loss; return their records."""
    for number, loss in enumerate((0.5, 0.25)):
        start = event(
            EVENT_STARTED, config={"lr": 0.1 * (number + 1), "model": {"depth": 4}}, python=f"3.1{number + 1}",
            **{"git.commit": f"c{number}", "git.branch": "main", "packages": {"numpy": f"2.{number}", "torch": "2.9"}},
        )  # fmt: skip
        machine = metric(1, "system", memory=float(number))
        write(
            *(home, f"R{number}", later([start, metric(1, loss=loss, lr=0.1), machine, finished()], 100 * number)),
            name=f"try {number}", wall_ns=START + 100 * number * SECOND, token=f"abc{number}",
        )  # fmt: skip
    return 8


def compared(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """What `diff --json` says."""
    capsys.readouterr()
    assert main(["diff", "--json", "--home", str(home), *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


EXPECTED = {
    "runs": ["R0", "R1"],
    "importing": {},
    "run": {"name": ["try 0", "try 1"]},
    "settings": {"lr": [0.1, 0.2]},
    "git": {"git.commit": ["c0", "c1"]},
    "packages": {"packages.numpy": ["2.0", "2.1"]},
    "environment": {"python": ["3.11", "3.12"]},
    "values": {"trainer/loss": [0.5, 0.25]},
}


def test_journals_and_a_hub_tell_the_same(
    start_hub: StartHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what differs, by section; the machine's own metrics only when everything is asked for."""
    two(tmp_path)
    assert compared(tmp_path, capsys, "R0", "R1") == EXPECTED
    hub = start_hub()
    hub.wait_stored("folder", two(hub.home))
    assert compared(hub.home, capsys, "try 0", "R1") == EXPECTED
    everything = compared(hub.home, capsys, "R0", "R1", "--all")
    assert everything["settings"]["model.depth"] == [4, 4]
    assert everything["values"]["system/memory"] == [0.0, 1.0]


def test_latest_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run is compared with the latest, none stands for the latest two, the older one first."""
    two(tmp_path)
    assert compared(tmp_path, capsys)["runs"] == compared(tmp_path, capsys, "R0")["runs"] == ["R0", "R1"]
    assert main(["diff", "R1", "--home", str(tmp_path)]) == 2
    assert "both are the run R1" in capsys.readouterr().err
    assert main(["diff", "--home", str(tmp_path / "nothing")]) == 2
    assert "there are no two runs" in capsys.readouterr().err


def test_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A section for each kind; metrics with their change."""
    two(tmp_path)
    assert main(["diff", "R0", "R1", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["- try 0 (R0)", "+ try 1 (R1)"]
    assert lines[lines.index("SETTINGS") + 1].split() == ["lr", "0.1", "0.2"]
    assert lines[lines.index("LAST VALUES") + 1].split() == ["trainer/loss", "0.5", "0.25", "-0.25"]
    assert all(len(line) <= 100 for line in lines)


def test_a_run_that_is_being_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of whose journals a hub has read a part is compared, and the output says how much of it."""
    two(tmp_path)
    ask = JournalAnswers.get

    def half_read(self: JournalAnswers, path: str, *, run: str, **params: Any) -> Any:
        answer = ask(self, path, run=run, **params)
        return {**answer, "importing": {"bytes": 40, "total": 100}} if (path, run) == (RUN, "R1") else answer

    monkeypatch.setattr(JournalAnswers, "get", half_read)
    assert compared(tmp_path, capsys, "R0", "R1")["importing"] == {"R1": 0.4}
    assert main(["diff", "R0", "R1", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "R1 is being imported, 40% so far: the rest is not compared yet"
