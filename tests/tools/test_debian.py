"""Debian packages are installed only where they are missing and may be installed."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "debian.sh"


class Machine:
    """A machine whose package tools only take notes."""

    def __init__(self, root: Path, *, user: int, installed: str = "", apt_status: int = 0) -> None:
        self.notes = root / "notes"
        self.notes.touch()
        self.path = root / "bin"
        self.path.mkdir()
        self.tool("id", f"echo {user}")
        self.tool("apt-get", f'echo "$@" >>{self.notes}; exit {apt_status}')
        self.tool("dpkg-query", f'[ "$4" = "{installed}" ] && echo "install ok installed"')

    def tool(self, name: str, line: str) -> None:
        """Put a program of one line on the machine's path."""
        program = self.path / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)

    def install(self, *packages: str) -> subprocess.CompletedProcess[str]:
        """Run the script for these packages."""
        environment = {"PATH": f"{self.path}{os.pathsep}{os.defpath}"}
        return subprocess.run(
            ["sh", str(SCRIPT), *packages], env=environment, capture_output=True, text=True, check=False
        )


def test_root_installs_what_is_missing(tmp_path: Path) -> None:
    """The lists are refreshed first, and what is there already is not asked for."""
    machine = Machine(tmp_path, user=0, installed="curl")
    assert machine.install("curl", "redis-server", "chromium").returncode == 0
    update, install = machine.notes.read_text().splitlines()
    assert update.startswith("update")
    assert install.split()[-2:] == ["redis-server", "chromium"]
    assert "curl" not in install


def test_nothing_is_done_when_nothing_is_missing(tmp_path: Path) -> None:
    """A machine that has everything needs no network."""
    machine = Machine(tmp_path, user=0, installed="redis-server")
    assert machine.install("redis-server").returncode == 0
    assert machine.notes.read_text() == ""


def test_others_are_told_what_is_missing(tmp_path: Path) -> None:
    """Without root nothing is installed, the names are printed, and set-up continues."""
    machine = Machine(tmp_path, user=1000)
    answer = machine.install("redis-server")
    assert (answer.returncode, machine.notes.read_text()) == (0, "")
    assert "redis-server" in answer.stderr


@pytest.mark.parametrize("status", [1, 100])
def test_a_failed_installation_is_an_error(tmp_path: Path, status: int) -> None:
    """CI does not go on without a peer that it should have had."""
    assert Machine(tmp_path, user=0, apt_status=status).install("redis-server").returncode == status
