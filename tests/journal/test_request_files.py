"""The files through which programs hear requests: merged, removed with their run, harmless when damaged."""

from pathlib import Path

import pytest

from stepscope.journal import layout, request_files
from stepscope.journal.run_edits import Edits, delete_files
from stepscope.model.run_requests import Request, Requests, asked_of

STOP = asked_of("a", 5, "ada", Request(attempt=1, stop=True))


def test_requests_are_merged(tmp_path: Path) -> None:
    """What was posted is read back; an older request, or the same again, changes nothing."""
    request_files.post(tmp_path, "one", STOP)
    path = layout.requests_path(tmp_path, "one")
    before = path.stat().st_mtime_ns
    request_files.post(tmp_path, "one", STOP)
    request_files.post(tmp_path, "one", asked_of("b", 4, "bob", Request(attempt=1, stop=True)))
    assert path.stat().st_mtime_ns == before
    request_files.post(tmp_path, "one", asked_of("c", 6, "eve", Request(attempt=1, settings={"lr": 0.5})))
    found = request_files.read(tmp_path, "one")
    assert (found.stop, found.settings["lr"].value) == (STOP.stop, 0.5)
    assert request_files.read(tmp_path, "two") == Requests()


@pytest.mark.parametrize("run", ["../one", "a/b", ".hidden", ""])
def test_a_name_that_leads_elsewhere_writes_nothing(tmp_path: Path, run: str) -> None:
    """Only a run id that is a safe file name has a file."""
    request_files.post(tmp_path / "home", run, STOP)
    request_files.remove(tmp_path / "home", run)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b'{"stop": 1}', b'{"stop": {"id": 1}}', b"[" * 100_000, b"\xff" * 99]
)
def test_a_damaged_file_asks_for_nothing(tmp_path: Path, data: bytes) -> None:
    """Whatever is in the file, reading it does not raise, and the next request replaces it."""
    path = layout.requests_path(tmp_path, "one")
    path.parent.mkdir()
    path.write_bytes(data)
    assert request_files.read(tmp_path, "one") == Requests()
    request_files.post(tmp_path, "one", STOP)
    assert request_files.read(tmp_path, "one") == STOP


def test_a_request_reaches_the_journals_of_this_home_only(tmp_path: Path) -> None:
    """A file is written where the run has journals; the edits keep the request in any case, and a deletion ends it."""
    edits = Edits(tmp_path)
    (layout.runs_folder(tmp_path) / "here" / "r0-a2-host-1-aa").mkdir(parents=True)
    for run in ("here", "there"):
        edits.append(run, "ada", request=Request(attempt=2, stop=True))
    assert request_files.read(tmp_path, "here") == edits.requests("here")
    assert not layout.requests_path(tmp_path, "there").exists()
    asked = edits.requests("there").stop
    assert asked is not None
    assert (asked.who, asked.attempt) == ("ada", 2)
    assert (edits.newest_attempt("here"), edits.newest_attempt("there"), edits.newest_attempt("../x")) == (2, 0, 0)
    moment = edits.append("here", "ada", deleted=True).time
    delete_files(tmp_path, "here", moment)
    assert not layout.requests_path(tmp_path, "here").exists()
    assert edits.requests("here") == Requests()


def test_edits_of_other_hubs_reach_the_programs_here(tmp_path: Path) -> None:
    """A request that was made at another hub on the same store is left for the processes of this home."""
    (layout.runs_folder(tmp_path / "b") / "one").mkdir(parents=True)
    made = Edits(tmp_path / "a").append("one", "ada", request=Request(attempt=1, stop=True))
    there = Edits(tmp_path / "b")
    there.add([made])
    assert request_files.read(tmp_path / "b", "one") == there.requests("one")
