"""What is set aside can be looked at, and is bounded."""

import os
from pathlib import Path

import pytest

from stepscope.journal.quarantine import Full, Quarantine, quarantined
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric

WRITER = Writer(id="r0-a1-host-1-abc", run="run", project="p", resource={"service.name": "s"})
BATCH = Batch(WRITER, 7, [Metric(1, 2, None, None, {"loss": float("inf")}), Event(1, 2, None, None, None, 9, "e")])


def test_round_trip(tmp_path: Path) -> None:
    """Records, writer, number and reason come back; files are for their owner alone."""
    Quarantine(tmp_path, "s").set_aside(BATCH, "too odd")
    (entry,) = Quarantine(tmp_path, "s").entries()
    assert (entry.batch, entry.note.reason, entry.note.records) == (BATCH, "too odd", 2)
    assert quarantined(tmp_path) == ["s"]
    assert Quarantine(tmp_path, "s").folder.stat().st_mode & 0o077 == 0


def test_oldest_first(tmp_path: Path) -> None:
    """Entries keep their order; discarding deletes one, and may be repeated."""
    quarantine = Quarantine(tmp_path, "s")
    for number in range(5):
        quarantine.set_aside(BATCH, f"reason {number}")
    entries = list(quarantine.entries())
    assert [entry.note.reason for entry in entries] == [f"reason {number}" for number in range(5)]
    quarantine.discard(entries[2])
    quarantine.discard(entries[2])
    assert len(list(quarantine.entries())) == 4


def test_bounded(tmp_path: Path) -> None:
    """The quarantine accepts no more than its limit until room is made."""
    quarantine = Quarantine(tmp_path, "s", most_entries=2)
    quarantine.set_aside(BATCH, "x")
    quarantine.set_aside(BATCH, "x")
    with pytest.raises(Full):
        quarantine.set_aside(BATCH, "x")
    Quarantine(tmp_path, "s").discard(next(quarantine.entries()))
    quarantine.set_aside(BATCH, "x")
    with pytest.raises(Full):
        Quarantine(tmp_path, "t", most_bytes=100).set_aside(BATCH, "x")


def test_damaged_lots_are_passed_over(tmp_path: Path) -> None:
    """A file that is not an entry hides no other."""
    quarantine = Quarantine(tmp_path, "s")
    quarantine.set_aside(BATCH, "x")
    (quarantine.folder / "1.lot").write_bytes(b"junk")
    assert len(list(quarantine.entries())) == 1


def test_damaged_lots_are_reported(tmp_path: Path) -> None:
    """Damaged entries are listed with what is known of them, counted, and can be discarded."""
    quarantine = Quarantine(tmp_path, "s", most_entries=2)
    quarantine.set_aside(BATCH, "too odd")
    (entry,) = quarantine.entries()
    os.truncate(entry.path, entry.path.stat().st_size - 5)
    (quarantine.folder / "1.lot").write_bytes(b"junk")
    junk, cut = quarantine.unreadable()
    assert list(quarantine.entries()) == []
    assert (cut.id, cut.run, cut.time, cut.note) == (entry.id, "run", entry.note.time, entry.note)
    assert (junk.id, junk.run, junk.time, junk.note, junk.size) == ("1", "", 1, None, 4)
    assert "2 of its 3 parts are whole" in cut.about
    assert "too odd" in cut.about
    with pytest.raises(Full):
        Quarantine(tmp_path, "s", most_entries=2).set_aside(BATCH, "x")
    quarantine.discard(junk)
    quarantine.discard(cut)
    assert list(quarantine.unreadable()) == []
