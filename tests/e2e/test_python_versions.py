"""What newer interpreters do differently at their end: since Python 3.12 no thread starts any more."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PACKAGE
from tests.sinks.servers import Server

NEWER = ("3.12", "3.13", "3.14")
COUNT = 200
TRAIN = f"""
import stepscope
run = stepscope.init(project="p", probes=False, shipper="thread")
for step in range({COUNT}):
    run.log({{"loss": float(step)}}, step=step, category="trainer")
"""


def _interpreters() -> Iterator[tuple[str, str]]:
    """The newer interpreters of this machine: this one, those on the path, those of pyenv."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in NEWER:
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        found = sys.executable if version == here else shutil.which(f"python{version}")
        if found is not None and subprocess.run([found, "-c", ""], capture_output=True).returncode:
            found = None  # a shim without an interpreter behind it
        found = found or next(map(str, pyenv), None)
        if found is not None:
            yield version, found


@pytest.mark.timeout(400)
def test_the_end_without_finish(tmp_path: Path) -> None:
    """A trainer that delivers in threads and never calls finish ends silently; all records arrive, none is refused."""
    tried = [_try(version, python, tmp_path / version) for version, python in _interpreters()]
    if not any(tried):
        pytest.skip(f"no Python of {', '.join(NEWER)} with our dependencies is here")


def _try(version: str, python: str, place: Path) -> bool:
    """Run the program with an interpreter; False when it cannot get our dependencies."""
    place.mkdir()
    if python != sys.executable:
        made = subprocess.run([python, "-m", "venv", place / "venv"], capture_output=True)
        python = str(place / "venv" / "bin" / "python")
        line = [python, "-m", "pip", "install", "-q", "msgspec", "opentelemetry-api"]
        if made.returncode or subprocess.run(line, capture_output=True).returncode:
            return False
    server = Server()
    try:
        sinks = json.dumps([{"otlp": {"endpoint": server.url}}])
        ours = {"PYTHONPATH": str(PACKAGE), "STEPSCOPE_HOME": str(place / "home"), "STEPSCOPE_SINKS": sinks}
        done = subprocess.run(
            [python, "-c", TRAIN], env={**os.environ, **ours}, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, ""), version
        assert sorted(server.steps()) == list(range(COUNT)), version
        assert not (place / "home" / "quarantine").exists(), version
    finally:
        server.stop()
    return True
