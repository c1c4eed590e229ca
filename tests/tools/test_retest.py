"""A test that fails first and passes alone is named and counted, never passed over."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import retest

PROGRAM = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range({flaky}))
def test_flaky(number):
    seen = pathlib.Path(__file__).with_name(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the machine is busy")

@pytest.mark.parametrize("number", range({broken}))
def test_broken(number):
    assert False

def test_good():
    pass
"""


def run(
    place: Path, *, flaky: int = 0, broken: int = 0, known: str = "", options: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Run the tool on a module with so many tests of each kind; its exit status and output."""
    (place / "test_it.py").write_text(PROGRAM.format(flaky=flaky, broken=broken))
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "flaky.txt").write_text(known)
    arguments = ["test_it.py", *options]
    program = "import sys; from pathlib import Path; from tools.retest import main\n"
    program += f"sys.exit(main({arguments!r}, Path('flaky.txt')))"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p tests.workers"}
    env = {**kept, **quick, "PYTHONPATH": str(retest.ROOT)}
    done = subprocess.run([sys.executable, "-c", program], cwd=place, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [("-n0",), ("-n", "2")], ids=["alone", "workers"])
def test_what_passes_alone_is_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A few tests that pass alone do not fail the run; each is named, and the end has pytest's own summaries."""
    status, said = run(tmp_path, flaky=3, options=options)
    assert status == 0, said
    end = said.splitlines()[-6:]
    assert end[0] == "retest: 3 of 3 failed tests passed alone"
    assert sorted(end[1:4]) == [f"retest: passed alone: test_it.py::test_flaky[{number}]" for number in range(3)]
    assert re.fullmatch(r"all: =+ 3 failed, 1 passed, 1 skipped in .+ =+", end[4])
    assert re.fullmatch(r"alone: =+ 3 passed in .+ =+", end[5])


def test_more_than_three_fail_the_run(tmp_path: Path) -> None:
    """Four tests that pass only alone fail it, although none fails twice; one that is listed is not counted."""
    status, said = run(tmp_path, flaky=4)
    assert (status, "4 tests passed only alone, 3 may" in said) == (1, True)
    for seen in tmp_path.glob("seen-*"):
        seen.unlink()
    status, said = run(tmp_path, flaky=4, known="# a comment\ntest_it.py::test_flaky[1]\n")
    assert (status, "passed alone: test_it.py::test_flaky[1] (known)" in said) == (0, True)


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    """A broken test fails the run and is named apart from those that pass alone."""
    status, said = run(tmp_path, flaky=1, broken=1)
    assert status == 1
    assert "retest: passed alone: test_it.py::test_flaky[0]\n" in said
    assert "retest: failed alone too: test_it.py::test_broken[0]\n" in said


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    """A run that is broken as a whole fails at once; a good one passes, and nothing is run again."""
    status, said = run(tmp_path, broken=retest.MAX_AGAIN + 1)
    assert (status, said.count(" in ")) == (1, 1)
    status, said = run(tmp_path)
    assert (status, "retest" in said) == (0, False)


def test_other_ends_are_passed_on(tmp_path: Path) -> None:
    """A wrong option, or nothing to run, is no failed test."""
    assert run(tmp_path, options=("--no-such-option",))[0] == 4
    assert run(tmp_path, options=("-k", "nothing"))[0] == 5


def test_the_list_only_shrinks() -> None:
    """Each version of tests/flaky.txt has no more names than the one before, and every name is that of a test file."""
    listed = retest.names(retest.KNOWN)
    assert [name for name in listed if not (retest.ROOT / name.partition("::")[0]).exists()] == []
    git = ["git", "-C", str(retest.ROOT)]
    path = retest.KNOWN.relative_to(retest.ROOT).as_posix()
    found = subprocess.run([*git, "log", "--format=%H", "--", path], capture_output=True, text=True)
    if found.returncode:
        pytest.skip("no history here")
    counts = [len(listed)]
    for commit in found.stdout.split():
        text = subprocess.run([*git, "show", f"{commit}:{path}"], capture_output=True, text=True).stdout
        counts.append(len([line for line in text.splitlines() if line.strip() and not line.startswith("#")]))
    assert counts == sorted(counts), "newest first"


def test_ci_runs_tests_once_and_through_the_tool() -> None:
    """In CI every lane, and the other Pythons, are run by the tool; `.ci/run` repeats nothing."""
    ci = (retest.ROOT / ".ci" / "run").read_text()
    assert "||" not in ci
    assert "last-failed" not in ci
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    line = ["make", "--dry-run", "VENV=.venv-absent", "CI=true", "test-all"]
    planned = subprocess.run(line, cwd=retest.ROOT, env=kept, capture_output=True, text=True, check=True).stdout
    assert ".venv-absent/bin/python tools/retest.py -n 8" in planned
