"""The edits of a home: on disk before they are acknowledged, in an order that a clock cannot break."""

import errno
import os
from pathlib import Path

import pytest

from stepscope.journal.run_edits import Edits
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from stepscope.model.run_description import Change, Description, apply, in_order


def names(home: Path) -> list[object]:
    """The names that were given to a run, in order."""
    return [edit.change.name for edit in in_order(Edits(home).of("run"))]


def test_the_last_edit_wins_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """An edit is later than those before it, whatever the clock says."""
    Edits(tmp_path, clock=lambda: 1_000_000).append("run", "me", Change(name="first"))
    edit = Edits(tmp_path, clock=lambda: 5).append("run", "me", Change(name="second"))
    assert edit.time == 1_000_001
    assert Edits(tmp_path, clock=lambda: 5).append("run", "me", Change(name="third"), after=2_000_000).time == 2_000_001
    assert names(tmp_path) == ["first", "second", "third"]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_edit_that_was_cut_short_costs_no_other(tmp_path: Path, cut: int) -> None:
    """After a torn write the edits before it and after it are read."""
    edits = Edits(tmp_path)
    for name in ("first", "torn"):
        edits.append("run", "me", Change(name=name))
    (path,) = (tmp_path / "edits").iterdir()
    os.truncate(path, path.stat().st_size - cut)
    Edits(tmp_path).append("run", "me", Change(name="third"))
    assert names(tmp_path) == ["first", "third"]


def test_an_edit_that_the_disk_does_not_take_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the caller gets an error, and no partial edit is left."""
    edits = Edits(tmp_path)
    edits.append("run", "me", Change(name="first"))

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            edits.append("run", "me", Change(name="lost"))
    edits.append("run", "me", Change(name="second"))
    assert names(tmp_path) == ["first", "second"]


def test_edits_of_other_processes_are_seen(tmp_path: Path) -> None:
    """A reader sees edits that others appended since its last read."""
    reader = Edits(tmp_path)
    assert reader.of("run") == ()
    Edits(tmp_path).append("run", "me", Change(tags={"a": True}))
    assert apply(Description(), reader.of("run")).tags == {"a": True}


def test_a_tombstone_covers_what_began_before_it(tmp_path: Path) -> None:
    """Batches of processes that began before the deletion are covered, those of a new start and of others are not."""
    edits = Edits(tmp_path, clock=lambda: 1000)
    edits.append("run", "me", Change(name="old"))
    moment = edits.append("run", "me", deleted=True).time
    ours = Writer(id="r0-a1-host-1-abc", run="run", project="p", wall_ns=moment)
    records = [Metric(moment + 5, None, None, None, {"x": 1.0})]
    assert edits.covers(Batch(ours, 0, list(records)))
    assert not edits.covers(Batch(Writer(id=ours.id, run="run", project="p", wall_ns=moment + 1), 0, list(records)))
    assert not edits.covers(Batch(Writer(id=ours.id, run="other", project="p", wall_ns=1), 0, list(records)))
    foreign = Writer(id="service", run="run", project="p", wall_ns=1)
    assert not edits.covers(Batch(foreign, 0, list(records)))
    assert edits.covers(Batch(foreign, 0, [Metric(moment, None, None, None, {"x": 1.0})]))
    assert apply(Description("recorded"), edits.of("run")).name == "recorded"


def test_the_order_of_reading_does_not_matter() -> None:
    """Edits are folded in the order of their times, then of their ids, however they are read."""
    from itertools import permutations

    from stepscope.model.run_description import Edit

    made = [
        Edit(run="run", time=1, id="a", change=Change(name="a", tags={"x": 1})),
        Edit(run="run", time=2, id="b", change=Change(name="b", tags={"x": None, "y": True})),
        Edit(run="run", time=2, id="c", change=Change(name="c", tags={"x": 3})),
    ]
    assert {apply(Description(), order).name for order in permutations(made)} == {"c"}
    assert all(apply(Description(), order).tags == {"y": True, "x": 3} for order in permutations(made))


def test_secrets_in_edits_are_masked(tmp_path: Path) -> None:
    """A password in a new name, a note, a tag or the name of who made the edit is in no file."""
    address = "postgres://bob:Zq7kV9xTr4@db/x"
    tags = {address: True, "db": address, "api_key": "Zq7kV9xTr4", "team": "blue"}
    edit = Edits(tmp_path).append("r", address, Change(name=address, notes=f"see {address}", tags=tags))
    assert edit.change.tags == {
        "postgres://[redacted]@db/x": True,
        "db": "postgres://[redacted]@db/x",
        "api_key": "[redacted]",
        "team": "blue",
    }
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"Zq7kV9xTr4" in path.read_bytes()]
