"""Which run is meant."""

import os
from pathlib import Path

import pytest

from stepscope.journal import layout
from stepscope.journal.resolve_run import UnknownRun, find_run, name_of, runs_by_age
from tests.cli.journals import metric, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three runs, of which `20250102-bbbb` began last."""
    for age, (run, name) in enumerate(
        [("20250102-bbbb", "base"), ("20250101-aaaa", "sweep"), ("20250101-abcd", "sweep")]
    ):
        write(tmp_path, run, [metric(1, loss=1.0)], name=name)
        os.utime(tmp_path / "runs" / run, (1000 - age, 1000 - age))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("20250101-aaaa", "20250101-aaaa"),
        ("20250101-aa", "20250101-aaaa"),
        ("base", "20250102-bbbb"),
        ("latest", "20250102-bbbb"),
    ],
)
def test_a_run_is_found_by_id_beginning_name_or_as_the_latest(home: Path, given: str, meant: str) -> None:
    """A run is found by its id, a prefix of it, its name, or `latest`."""
    assert find_run(home, given) == meant


@pytest.mark.parametrize("given", ["20250101", "sweep"])
def test_what_can_mean_several_is_refused_with_the_list(home: Path, given: str) -> None:
    """No guess is made."""
    with pytest.raises(UnknownRun, match=r"matches 2 runs:\n  20250101-a\w+  sweep\n  20250101-a\w+  sweep"):
        find_run(home, given)


def test_an_unknown_run_lists_the_nearest(home: Path) -> None:
    """A typing error is answered with what was probably meant."""
    with pytest.raises(UnknownRun, match=r"no run 'bse' in .*; closest matches:\n  20250102-bbbb  base"):
        find_run(home, "bse")


@pytest.mark.parametrize("given", ["zzz", "", "../..", "*"])
def test_nothing_near_lists_the_latest(home: Path, given: str) -> None:
    """There is always something to choose from, and no path gets out of the home."""
    with pytest.raises(UnknownRun, match=r"20250102-bbbb"):
        find_run(home, given)


@pytest.mark.parametrize("given", ["lates", "latets", "Latest"])
def test_a_misspelled_latest_is_answered_with_it(home: Path, given: str) -> None:
    """The word is nearer than any name."""
    with pytest.raises(UnknownRun, match=r"; did you mean latest\?$"):
        find_run(home, given)


def test_an_exact_id_wins_over_longer_ones(home: Path) -> None:
    """An id that begins another is not ambiguous."""
    write(home, "20250101-aaaa-2", [metric(1, loss=1.0)])
    assert find_run(home, "20250101-aaaa") == "20250101-aaaa"


def test_no_runs_at_all(tmp_path: Path) -> None:
    """An empty or missing home says so."""
    with pytest.raises(UnknownRun, match="there are no runs in"):
        find_run(tmp_path / "nowhere", "latest")


def test_runs_are_ordered_by_their_newest_attempt(home: Path) -> None:
    """A restarted run is recent."""
    assert runs_by_age(home)[0] == "20250102-bbbb"
    write(home, "20250101-aaaa", [metric(1, loss=1.0)], attempt=2)
    assert runs_by_age(home)[0] == "20250101-aaaa"


def test_a_damaged_head_gives_no_name(home: Path) -> None:
    """A run with a broken head can still be found by its id."""
    folder = layout.writer_folder(home, "20250102-bbbb", layout.list_writers(home, "20250102-bbbb")[0])
    path = layout.list_segments(folder)[0]
    path.write_bytes(b"\0" * 20 + path.read_bytes()[20:])
    assert name_of(home, "20250102-bbbb") is None
    assert find_run(home, "20250102") == "20250102-bbbb"


@pytest.mark.parametrize("stray", [".hid", "20250103-empty"])
def test_latest_skips_empty_runs(home: Path, stray: str) -> None:
    """`latest` skips a run without records, which can still be selected by name."""
    (home / "runs" / stray).mkdir()
    assert find_run(home, "latest") == "20250102-bbbb"
    if stray != ".hid":
        assert find_run(home, stray) == stray
