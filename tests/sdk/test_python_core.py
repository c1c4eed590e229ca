"""The tests of the training process hold with the Python core as well, which is used where nothing was compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.sdk import core

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(core.chosen() == "Python", reason="this run of the tests has the Python core itself")
@pytest.mark.timeout(1800)
def test_all_of_them_pass_with_the_python_core(tmp_path: Path) -> None:
    """Each test of this folder, in another process."""
    assert hasattr(stepscope.Run.log, "__wrapped__")
    options = ("-q", "-n0", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}")
    line = [sys.executable, "-m", "pytest", *options, "tests/sdk"]
    env = {**os.environ, core.FORCE_PYTHON: "1"}
    ended = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:]
    assert "the compiled core is not built" in ended.stdout  # skipped by name
