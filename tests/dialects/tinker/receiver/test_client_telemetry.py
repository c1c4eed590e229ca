"""Positions that never came are a loss, and nothing else is."""

import os
from pathlib import Path

from stepscope.dialects.tinker.receiver.client_telemetry import KEPT_SECONDS, LARGEST_GAP, EventGaps, Gaps


def test_gaps_are_found_and_closed(tmp_path: Path) -> None:
    """A gap counts once, says where it is, and is no gap any more when its events come late."""
    gaps = EventGaps(tmp_path)
    assert gaps.add("p", [0, 1, 2]) == Gaps(0, 0)
    assert gaps.add("p", [5, 6, 9]) == Gaps(4, 4, 3, 8)
    assert gaps.add("p", [10]) == Gaps(4, 0)
    assert gaps.add("p", [3, 4]) == Gaps(2, -2)
    assert gaps.add("q", [2]) == Gaps(2, 2, 0, 1)


def test_a_second_client_of_the_same_process_makes_no_gap(tmp_path: Path) -> None:
    """A pickled client counts from 0 again under the same session."""
    gaps = EventGaps(tmp_path)
    gaps.add("p", [0, 1, 2, 3])
    assert [gaps.add("p", [0]), gaps.add("p", [1, 2])] == [Gaps(0, 0), Gaps(0, 0)]


def test_a_restart_is_no_gap(tmp_path: Path) -> None:
    """What was saved is known to the next hub; what was not stored is forgotten."""
    gaps = EventGaps(tmp_path)
    gaps.add("p", [0, 1, 4])
    gaps.save("p")
    gaps.add("p", [5, 6])
    gaps.forget("p")
    assert EventGaps(tmp_path).add("p", [5]) == Gaps(2, 0)
    assert gaps.add("p", [6]) == Gaps(3, 1, 5, 5)


def test_a_number_that_means_nothing_is_no_loss(tmp_path: Path) -> None:
    """One absurd position does not count as billions of lost events."""
    gaps = EventGaps(tmp_path)
    assert gaps.add("p", [0, LARGEST_GAP * 2]) == Gaps(0, 0)


def test_damaged_and_old_files_do_no_harm(tmp_path: Path) -> None:
    """A file that cannot be read is as none, an old one is removed, and a folder that is a file is no error."""
    (tmp_path / "p.json").write_bytes(b"{")
    (tmp_path / "old.json").write_bytes(b"[[0,3]]")
    os.utime(tmp_path / "old.json", (1, 1))
    assert EventGaps(tmp_path, now=1 + KEPT_SECONDS * 2).add("p", [0]) == Gaps(0, 0)
    assert not (tmp_path / "old.json").exists()
    (tmp_path / "file").write_bytes(b"")
    blocked = EventGaps(tmp_path / "file" / "inside")
    blocked.add("p", [0])
    blocked.save("p")
