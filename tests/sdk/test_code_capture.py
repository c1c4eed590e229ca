"""Uncommitted changes: recorded once as a file, masked and bounded, and never in the way of the run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import stepscope
from stepscope.model.names import EVENT_STARTED
from stepscope.model.records import Event
from stepscope.sdk import code_capture, launch
from stepscope.testing.journals import read_run

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working tree with a commit, a remote with a password, and a change with a secret."""
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "train.py").write_text("lr = 1\n")
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for line in (("init", "-q"), ("add", "."), (*name, "commit", "-qm", "first")):
        subprocess.run(("git", *line), cwd=folder, check=True)
    subprocess.run(("git", "remote", "add", "origin", "https://me:pw1234@host/repo.git"), cwd=folder, check=True)
    (folder / "train.py").write_text("lr = 2\npassword = 'hunter2hunter2'\n")
    monkeypatch.chdir(folder)
    return folder


def test_changes_are_a_file_of_the_run(tree: Path, tmp_path: Path) -> None:
    """The changes are there after a run of no length, without secrets; without the setting there are none."""
    run = stepscope.init(home=tmp_path / "home", run_id="changed", capture_code=True, probes=False, quiet=True)
    run.finish()
    (text,) = _changes(tmp_path / "home")
    assert "+lr = 2" in text
    assert "hunter2" not in text
    stepscope.init(home=tmp_path / "plain", run_id="plain", probes=False, quiet=True).finish()
    assert _changes(tmp_path / "plain") == []


def test_a_folder_that_is_gone(tree: Path, tmp_path: Path) -> None:
    """A run begins where the folder of its program was deleted, and records no changes."""
    shutil.rmtree(tree)
    stepscope.init(home=tmp_path / "home", run_id="gone", capture_code=True, probes=False, quiet=True).finish()
    os.chdir(tmp_path)
    assert _changes(tmp_path / "home") == []


def _changes(home: Path) -> list[str]:
    """The files of a home that are changes."""
    contents = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    return [each.decode() for each in contents if each.startswith(b"diff --git")]


def test_the_amount_is_limited(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of changes beyond the limit the beginning is kept, and what is missing is said; so is a slow git."""
    whole, problem = code_capture.read_changes(str(tree))
    assert whole.startswith(b"diff --git")
    assert not problem
    monkeypatch.setattr(code_capture, "MAX_BYTES", 20)
    part, problem = code_capture.read_changes(str(tree))
    assert part == whole[:20]
    assert "more than" in problem
    monkeypatch.setattr(code_capture, "MAX_SECONDS", -1e9)
    read, write = os.pipe()
    assert "longer than" in code_capture._read(read)[1]
    for end in (read, write):
        os.close(end)


def test_a_folder_without_git_has_no_changes(tmp_path: Path) -> None:
    """Where there is no commit, or no such folder, nothing is recorded and nothing is said."""
    assert code_capture.read_changes(str(tmp_path)) == (b"", "")
    assert code_capture.read_changes(str(tmp_path / "none")) == (b"", "")


def test_the_start_has_remote_and_packages(tree: Path, tmp_path: Path) -> None:
    """The start names the remote without its password, and the versions of imported packages."""
    described = launch.describe()
    assert described["packages"]["msgspec"].count(".") >= 1
    assert "json" not in described["packages"]
    stepscope.init(home=tmp_path / "home", run_id="remote", probes=False, quiet=True).finish()
    (started,) = [
        each for each in read_run(tmp_path / "home", "remote") if isinstance(each, Event) and each.name == EVENT_STARTED
    ]
    assert started.attrs["git.remote"] == "https://host/repo.git"
