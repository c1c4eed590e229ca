"""The Python that has the clients of other tools installed, which would get in the way of other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(sys.prefix) / "clients" / "bin" / "python"


def run_client(module: str, source: str, place: Path, **env: str) -> None:
    """Run a program that uses a foreign client; skipped where the client is not installed."""
    if not PYTHON.exists():
        pytest.skip(f"{module} is not installed (make setup CI=true)")
    known = {"PATH": "/usr/bin:/bin", "HOME": str(place), **env}
    subprocess.run([PYTHON, "-c", source], cwd=place, env=known, check=True, capture_output=True, timeout=300)
