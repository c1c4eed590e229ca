"""`stepscope step` and `export`, and `stepscope.read`: of journals alone, and through a hub that runs."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("chdb", reason="the hub's store needs chDB")

from stepscope import read

PROGRAM = """
import stepscope
run = stepscope.init(project="p", name="short", config={"lr": 0.1})
for i in range(60):
    with run.step(i):
        with run.span("forward"):
            loss = 9.0 if i == 55 else 1.0 + (i % 5) / 10
        run.log({"loss": loss}, category="trainer")
run.alert("spike", "loss jumped")
run.finish()
"""
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(home: Path, python: Any) -> Cli:
    """Run a command on the home of a run that has ended."""
    assert python(PROGRAM).returncode == 0

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "stepscope.cli.main", *arguments, "--home", str(home)]
        return subprocess.run(line, capture_output=True, text=True, env=_environment(), timeout=100, check=False)

    return run


def _environment() -> dict[str, str]:
    here = Path(__file__).parents[2] / "src"
    return {**os.environ, "PYTHONPATH": str(here)}


def check_all(cli: Cli, home: Path, tmp_path: Path) -> None:
    """The commands and `read` agree on what was recorded."""
    shown = cli("step", "latest", "55")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"trainer/loss +0 +9 +1\.2 +7\.8 .*!", shown.stdout)
    assert re.search(r"^  forward ", shown.stdout, re.MULTILINE)
    view = json.loads(cli("step", "short", "55", "--json").stdout)
    assert (view["previous"], view["next"], view["step"]) == (54, 56, 55)
    target = tmp_path / "copy.csv"
    done = cli("export", "latest", "-o", str(target), "--key", "trainer/loss")
    assert done.returncode == 0, done.stderr
    assert len(target.read_text().splitlines()) == 61
    assert cli("export", "latest", "-o", str(tmp_path / "copy.xls")).returncode == 2
    assert cli("step", "nobody", "1").returncode == 2
    table = read("e2e", keys=["trainer/loss"], home=home)
    assert table.column("value").to_pylist()[55] == 9.0


def test_without_a_hub(cli: Cli, home: Path, tmp_path: Path) -> None:
    """The engine is started in the process and reads the journals."""
    check_all(cli, home, tmp_path)


def test_with_a_hub(cli: Cli, home: Path, tmp_path: Path, until: Callable[..., None]) -> None:
    """The hub that has the home folder open is asked."""
    line = [sys.executable, "-m", "stepscope.cli.main", "hub", "--home", str(home), "--port", "0", "--grpc-port", "0"]
    hub = subprocess.Popen(line, env=_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout is not None
        assert "stepscope hub: http://127.0.0.1:" in hub.stdout.readline()
        until(lambda: '"step": 59' in cli("step", "latest", "59", "--json").stdout)
        check_all(cli, home, tmp_path)
        (home / "runs" / "e2e").rename(tmp_path / "moved")
        assert "e2e" in cli("runs").stdout
        assert json.loads(cli("show", "e2e", "--json").stdout)["config"] == {"lr": 0.1}
        assert "trainer/loss" in cli("show", "short").stdout
    finally:
        hub.send_signal(signal.SIGTERM)
        assert hub.wait(30) == 0
