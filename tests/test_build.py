"""The compiled core is built without a warning; where there is no compiler, all else is installed."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])


def build(place: Path, **env: str) -> tuple[list[str], str]:
    """The modules that are built into a folder, and what was said."""
    folders = ("--build-lib", str(place / "lib"), "--build-temp", str(place / "temp"))
    line = [sys.executable, "setup.py", "-q", "build_ext", *folders]
    ended = subprocess.run(line, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [each.name.partition(".")[0] for each in place.rglob("*.so")], ended.stderr


@pytest.mark.skipif(COMPILER is None, reason="no compiler on this machine")
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    """A warning is an error here."""
    assert build(tmp_path, CFLAGS="-Werror") == (["loop_calls"], "")


def test_no_compiler_is_no_error(tmp_path: Path) -> None:
    """The build goes on without the compiled core, and says so."""
    built, said = build(tmp_path, CC="/bin/false")
    assert built == []
    assert 'building extension "stepscope.sdk.loop_calls" failed' in said


def test_the_python_core_may_be_asked_for(tmp_path: Path) -> None:
    """STEPSCOPE_PURE_PYTHON at the build compiles nothing."""
    assert build(tmp_path, STEPSCOPE_PURE_PYTHON="1") == ([], "")
