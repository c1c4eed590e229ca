"""`tag`, `note`, `rename`, `archive` and `delete`: with journals alone, and through a hub."""

import json
import os
import pty
import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.journal.following import Cursors
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import Position
from stepscope.model.ports import Batch, Writer
from tests.cli.journals import event, finished, metric, this_host, write
from tests.forked import stepscope
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]


def command(home: Path, *arguments: str, code: int = 0, stdin: int | None = None) -> str:
    """Run a command and return what it printed."""
    done = stepscope(*arguments, "--home", home, stdin=stdin)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def record(home: Path, run: str) -> None:
    """Write the journal of a run that has ended."""
    write(home, run, [event("train.run.started", config={}), metric(0, loss=1.0), finished()], name=f"name of {run}")


@pytest.fixture(params=["journals", "hub"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A home with two runs; a hub has it open, or none has."""
    place = tmp_path / "home"
    record(place, "one")
    record(place, "two")
    if request.param == "hub":
        start: StartHub = request.getfixturevalue("start_hub")
        hub = start(home=place)
        hub.wait_stored("folder", 6)
    return place


def described(home: Path, run: str) -> dict[str, Any]:
    """What a run is called, as `tag --json` tells it."""
    found: dict[str, Any] = json.loads(command(home, "tag", run, "--json"))
    return found


def test_commands_change_a_run(home: Path) -> None:
    """Tags, notes and a name that a command sets are in `runs` and `show`; the new name finds the run."""
    assert command(home, "tag", "one", "baseline", "team=red").split() == ["baseline", "team=red"]
    command(home, "tag", "one", "more", "--remove", "baseline")
    command(home, "note", "one", "better than the last")
    command(home, "rename", "one", "final")
    assert described(home, "final") == {
        "run": "one", "name": "final", "notes": "better than the last",
        "tags": {"team": "red", "more": True}, "archived": False,
    }  # fmt: skip
    assert command(home, "note", "one") == "better than the last\n"
    listed = {each["run"]: each for each in json.loads(command(home, "runs", "--json"))}
    assert (listed["one"]["name"], listed["one"]["tags"]) == ("final", {"team": "red", "more": True})
    shown = command(home, "show", "one")
    assert "tags team=red, more" in shown
    assert "notes better than the last" in shown
    assert "no run" in command(home, "rename", "absent", "x", code=2)


def test_texts_of_runs_cannot_control_the_terminal(tmp_path: Path) -> None:
    """Notes and names keep their lines at most: control sequences are not printed, not in errors either."""
    record(tmp_path, "one")
    assert command(tmp_path, "note", "one", "red \x1b[31m\nnext") == "red \ufffd[31m\nnext\n"
    command(tmp_path, "rename", "one", "two\nlines \x1b]0;title\x07")
    unknown = command(tmp_path, "show", "absent", code=2)
    assert unknown.splitlines()[1:] == ["  one  two lines \ufffd]0;title\ufffd"]


def test_archived_runs_are_listed_when_asked_for(home: Path) -> None:
    """`archive` hides a run from `runs`, `--archived` shows it, `--undo` brings it back."""
    command(home, "archive", "one")
    assert [each["run"] for each in json.loads(command(home, "runs", "--json"))] == ["two"]
    both = json.loads(command(home, "runs", "--json", "--archived"))
    assert {each["run"]: each["archived"] for each in both} == {"one": True, "two": False}
    command(home, "archive", "one", "--undo")
    assert len(json.loads(command(home, "runs", "--json"))) == 2


def test_delete_says_what_it_freed_and_leaves_the_others(home: Path) -> None:
    """`delete --yes` removes journals, entries and registrations of one run; another run's stay."""
    for run in ("one", "two"):
        writer = Writer(id="w", run=run, project="p")
        Quarantine(home, "otlp").set_aside(Batch(writer, 1, [metric(1, loss=2.0)]), "no")
        (home / "shipping").mkdir(exist_ok=True)
        (home / "shipping" / f"{run}@here.want").write_text("{}")
    (said,) = json.loads(command(home, "delete", "one", "--yes", "--json"))
    assert said["freed"]["journals"] > 100
    assert said["freed"]["quarantine"] > 100
    assert said["bytes"] == sum(said["freed"].values())
    assert [path.name for path in (home / "runs").iterdir()] == ["two"]
    assert [entry.batch.writer.run for entry in Quarantine(home, "otlp").entries()] == ["two"]
    assert [path.name for path in (home / "shipping").glob("*.want")] == ["two@here.want"]
    assert [each["run"] for each in json.loads(command(home, "runs", "--json"))] == ["two"]
    assert "no run" in command(home, "delete", "one", "--yes", code=2)


def test_delete_asks_first(tmp_path: Path) -> None:
    """Off a terminal it wants --yes; at one it asks, and everything but yes keeps the run."""
    record(tmp_path, "one")
    assert "--yes" in command(tmp_path, "delete", "one", code=2)
    for answer, stays in (("n\n", True), ("yes\n", False)):
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        command(tmp_path, "delete", "one", code=int(stays), stdin=theirs)
        os.close(ours)
        os.close(theirs)
        assert (tmp_path / "runs" / "one").exists() == stays


def test_a_running_run_is_refused(tmp_path: Path) -> None:
    """A run whose process lives is not deleted."""
    write(tmp_path, "one", [metric(0, loss=1.0)], pid=os.getpid(), host=this_host(), wall_ns=time.time_ns())
    assert "end it before you delete it" in command(tmp_path, "delete", "one", "--yes", code=2)
    assert (tmp_path / "runs" / "one").exists()


def test_a_deleted_run_leaves_the_cursors_of_others(tmp_path: Path) -> None:
    """After a deletion, the cursors of the other runs are unchanged."""
    from stepscope.journal import layout
    from stepscope.journal.following import Following

    record(tmp_path, "one")
    record(tmp_path, "two")
    keys = {run: f"{run}/{layout.list_writers(tmp_path, run)[0]}" for run in ("one", "two")}
    name = layout.parse_writer(keys["two"].partition("/")[2])
    assert name is not None
    sink = f"otlp@{name.host}"
    cursors = Cursors(tmp_path, sink)
    for key in keys.values():
        cursors.set(key, Position(0, 0, 1))
    cursors.save()
    command(tmp_path, "delete", "one", "--yes")
    following = Following(tmp_path, "otlp")
    assert {batch.writer.run for batch in following.read(1 << 20)} <= {"two"}
    following.settle()
    assert Cursors(tmp_path, sink).get(keys["one"]) == Position()
    assert Cursors(tmp_path, sink).get(keys["two"]).seq == 1
