"""Tests run in forked workers are reported as those of one process: results, fixtures, deaths and interruptions."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def run(place: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    """Run pytest with two workers on these files; its exit status and output."""
    with begun(place, files, *options) as process:
        said, _ = process.communicate(timeout=300)
    return process.returncode, said


def begun(place: Path, files: dict[str, str], *options: str) -> "subprocess.Popen[str]":
    """Start pytest with two workers on these files."""
    (place / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (place / name).write_text(f"import os, pathlib, pytest\nPLACE = pathlib.Path(__file__).parent\n{text}")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env = {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "pytest", "-p", "tests.workers", "-n2", "-ra", *options]
    return subprocess.Popen(line, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def noted(place: Path) -> list[str]:
    """What the tests have written down, in order."""
    return (place / "noted").read_text().splitlines()


NOTE = """
def note(word):
    with open(PLACE / "noted", "a") as file:
        file.write(f"{word}\\n")
"""


def test_results_are_those_of_one_process(tmp_path: Path) -> None:
    """Passed, failed, skipped and expected failures are counted, with their reasons, output and warnings."""
    text = """
def test_good(): pass
def test_bad():
    print("what it", "said")
    assert 1 == 2
def test_skipped(): pytest.skip("not here")
@pytest.mark.xfail(reason="known")
def test_known(): assert False
def test_warned():
    import warnings
    class Own(UserWarning): pass
    warnings.warn("old way", DeprecationWarning)
    warnings.warn("own way", Own)
@pytest.fixture
def broken(): raise OSError("no place")
def test_error(broken): pass
"""
    status, said = run(tmp_path, {"test_a.py": text, "test_b.py": text})
    assert status == 1
    assert "2 failed, 4 passed, 2 skipped, 2 xfailed, 4 warnings, 2 errors" in said
    assert said.count("what it said") == 2
    for each in ("assert 1 == 2", "not here", "known", "old way", "own way", "no place", "test_b.py::test_bad"):
        assert each in said, each


def test_files_are_collected_once_and_run_side_by_side(tmp_path: Path) -> None:
    """A module is imported by one process only; the tests of two files meet, each in a process of its own."""
    text = (
        NOTE
        + """
note(f"imported {os.getpid()}")
def test_meets(tmp_path):
    (PLACE / f"here-{os.getpid()}").touch()
    while len(list(PLACE.glob("here-*"))) < 2: pass
    assert len({PLACE, tmp_path.parent}) == 2
"""
    )
    status, said = run(tmp_path, {"test_a.py": text, "test_b.py": text})
    assert (status, "2 passed" in said) == (0, True), said
    assert len(noted(tmp_path)) == 2
    assert len(set(noted(tmp_path))) == 1


def test_fixtures_end_as_in_one_process(tmp_path: Path) -> None:
    """Those of a module before the next module begins, those of the session after the last test; an error is seen."""
    conftest = (
        NOTE
        + """
@pytest.fixture(scope="session")
def once():
    note("begin")
    yield
    note("end")
    raise OSError("cannot close")
@pytest.fixture(scope="module")
def part(once, request):
    note(f"+{request.module.__name__}")
    yield
    note(f"-{request.module.__name__}")
"""
    )
    tests = "def test_one(part): pass\ndef test_two(part): pass\n"
    files = {"conftest.py": conftest, **{f"test_{name}.py": tests for name in "abc"}}
    status, said = run(tmp_path, files, "-n1")
    assert status == 1
    assert noted(tmp_path) == ["begin", *(f"{sign}test_{name}" for name in "abc" for sign in "+-"), "end"]
    assert "6 passed, 1 error" in said
    assert "cannot close" in said


@pytest.mark.parametrize("victim", ["test_1", "test_2", "test_3"])
def test_a_worker_that_dies_fails_its_test(tmp_path: Path, victim: str) -> None:
    """The test is named, and the others of its file, and of the next ones, are run, each once."""
    text = (
        NOTE
        + f"""
@pytest.mark.parametrize("number", [1, 2, 3])
def test(number, request):
    note(f"{{request.module.__name__}} {{number}}")
    if f"test_{{number}}" == "{victim}" and request.module.__name__ == "test_b": os.kill(os.getpid(), 9)
"""
    )
    status, said = run(tmp_path, {f"test_{name}.py": text for name in "abcd"})
    assert status == 1
    assert "1 failed, 11 passed" in said
    assert f"has ended with -9 while it ran test_b.py::test[{victim[-1]}]" in said
    assert sorted(noted(tmp_path)) == [f"test_{name} {number}" for name in "abcd" for number in (1, 2, 3)]


def test_the_first_failure_stops_all(tmp_path: Path) -> None:
    """With -x no worker begins another test."""
    good = "import time\n@pytest.mark.parametrize('number', range(2000))\ndef test(number): time.sleep(0.01)\n"
    bad = "def test_bad(): assert False\n"
    status, said = run(tmp_path, {"test_a.py": good, "test_b.py": bad, "test_c.py": good}, "-x")
    assert status == 1
    assert "stopping after 1 failures" in said
    passed = re.search(r"1 failed, (\d+) passed", said)
    assert passed is None or int(passed[1]) < 2000, said


def test_an_interruption_closes_fixtures(tmp_path: Path) -> None:
    """After a Ctrl-C, which only the parent may get, each worker closes what its tests use."""
    text = (
        NOTE
        + """
@pytest.fixture
def open_one():
    note("open")
    yield
    note("closed")
def test_long(open_one):
    import signal
    while True: signal.pause()
"""
    )
    with begun(tmp_path, {"test_a.py": text, "test_b.py": text}) as process:
        wait_until(lambda: (tmp_path / "noted").exists() and len(noted(tmp_path)) == 2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert process.returncode == 2
    assert sorted(noted(tmp_path)) == ["closed", "closed", "open", "open"]


def test_an_error_of_a_plugin_ends_the_run(tmp_path: Path) -> None:
    """It is no failed test, and nobody waits for the worker that it has ended."""
    conftest = "def pytest_runtest_logfinish(nodeid): os.getpid() == PARENT or 1 / 0\nPARENT = os.getpid()\n"
    status, said = run(tmp_path, {"conftest.py": conftest, "test_a.py": "def test_it(): pass\n"})
    assert status == 3
    assert "ZeroDivisionError" in said
