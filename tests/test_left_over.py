"""A run of the tests fails when one of them leaves a process running."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOKS = """
from tests import left_over

left_over.LEAVE_SECONDS = 0.5
"""
TESTS = """
import os, subprocess, sys, time

DAEMON = '''
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
os.chdir("/")
print(os.getpid(), flush=True)
time.sleep(600)
'''

def test_leaves():
    with open({out!r}, "w") as out:
        subprocess.run([sys.executable, "-c", DAEMON], stdout=out, check=True)

def test_ends():
    subprocess.run([sys.executable, "-c", "pass"], check=True)
"""


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_process_that_a_test_leaves_fails_the_run_and_is_ended(tmp_path: Path, workers: str) -> None:
    """A daemon in a session of its own is found, named with its test, and killed, although all tests passed."""
    out = tmp_path / "pid"
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "test_leaving.py").write_text(TESTS.format(out=str(out)))
    line = [sys.executable, "-m", "pytest", "-q", workers, "-p", "no:cacheprovider", "-c", "/dev/null"]
    line += ["-p", "no:xdist", "-p", "tests.left_over", "-p", "tests.workers"]
    ended = subprocess.run(
        [*line, "--rootdir", str(tmp_path), str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    pid = out.read_text().strip()
    assert "2 passed" in ended.stdout
    assert ended.returncode == 1, ended.stdout
    assert f"LEFT RUNNING by test_leaving.py::test_leaves (call): {pid} " in ended.stdout
    assert "test_ends" not in ended.stdout
