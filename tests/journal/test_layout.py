"""Where journals lie: names are safe, unique, and listed in the order they were written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.journal import layout


@given(st.text())
def test_any_text_becomes_a_safe_folder_name(text: str) -> None:
    """A slug is a safe name whatever it was made of, and a slug of a slug is itself."""
    slug = layout.slug(text)
    assert layout.is_safe(slug)
    assert "/" not in slug


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".hidden", "a b", "ü", "x" * 129, "a\n", "a\0b"])
def test_names_that_could_leave_the_folder_are_not_safe(name: str) -> None:
    """A run id is refused when it is a path, hidden, too long or not plain ASCII."""
    assert not layout.is_safe(name)


@given(st.integers(0), st.integers(0), st.text().map(layout.slug), st.integers(0), st.integers(0))
def test_a_writers_name_round_trips(rank: int, attempt: int, host: str, pid: int, token: int) -> None:
    """What a folder's name was made of is read back from it, also when the host's name has dashes."""
    name = layout.WriterName(rank, attempt, host, pid, f"{token:x}")
    assert layout.parse_writer(str(name)) == name


@pytest.mark.parametrize("name", ["", "r0", "r0-a1", "r-a1-h-1-ab", "r0-a1-h-1-XY", "r٣-a1-h-1-ab", "x-r0-a1-h-1-ab"])
def test_other_folders_are_not_taken_for_writers(name: str) -> None:
    """A name of another form is no writer's."""
    assert layout.parse_writer(name) is None


def test_segments_are_listed_in_the_order_they_were_written(tmp_path: Path) -> None:
    """Segments are sorted by number, also past six digits; other files are skipped."""
    indices = [0, 7, 999_999, 1_000_000, 10_000_000]
    for index in reversed(indices):
        layout.segment_path(tmp_path, index).touch()
    for other in ("000001.tmp", "notes.seg", "²²²²²².seg", "٣٣٣٣٣٣.seg", "1.seg", "0000002.seg", "000003.seg.tmp"):
        (tmp_path / other).touch()
    assert [int(path.stem) for path in layout.list_segments(tmp_path)] == indices


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    """No home, no run, no writer, or a file in its place: the lists are empty."""
    (tmp_path / "runs").touch()
    for home in (tmp_path, tmp_path / "none"):
        assert layout.list_runs(home) == []
        assert layout.list_writers(home, "run") == []
        assert layout.list_segments(layout.writer_folder(home, "run", "writer")) == []


def test_runs_and_writers_are_listed_by_name(tmp_path: Path) -> None:
    """Runs are folders with a name that a run can have; writers are folders with a writer's name."""
    for writer in ("r1-a1-h-1-ab", "r0-a1-h-1-ab", "notes"):
        layout.writer_folder(tmp_path, "b", writer).mkdir(parents=True)
    for folder in ("a", ".hidden", "lost+found", "a b"):
        (layout.runs_folder(tmp_path) / folder).mkdir()
    (layout.runs_folder(tmp_path) / "c").touch()
    assert layout.list_runs(tmp_path) == ["a", "b"]
    assert layout.list_writers(tmp_path, "b") == ["r0-a1-h-1-ab", "r1-a1-h-1-ab"]
