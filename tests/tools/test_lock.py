"""The locks have exact versions, are consistent, and do not depend on an index or an architecture."""

import re
import tomllib
from pathlib import Path

import pytest

from tools import lock

LOCKS = sorted((lock.ROOT / "requirements").glob("*.lock"))
PIN = re.compile(r"([a-z0-9][a-z0-9.-]*)==([0-9][0-9a-z.]*)( ; .+)?")


def locked(path: Path) -> dict[str, str]:
    """Read a lock, insisting that each line is a pin and nothing else."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    matches = {line: PIN.fullmatch(line) for line in lines}
    assert [line for line, match in matches.items() if match is None] == []
    return {match[1]: match[2] for match in matches.values() if match}


def test_a_report_becomes_pins() -> None:
    """Names are normalised and sorted, local builds lose their suffix, the project itself is left out."""
    report = {
        "install": [
            {"metadata": {"name": "torch", "version": "2.13.0+cpu"}, "download_info": {"archive_info": {}}},
            {"metadata": {"name": "Ml_dtypes", "version": "0.6.0"}, "download_info": {"archive_info": {}}},
            {"metadata": {"name": "stepscope", "version": "0.1.0"}, "download_info": {"dir_info": {}}},
        ]
    }
    assert lock.pins(report) == ["ml-dtypes==0.6.0", "torch==2.13.0"]


def test_the_locks_are_there() -> None:
    """Each lock that `make lock` writes is in the repository."""
    assert {f"{name}.lock" for name in lock.LOCKS} <= {path.name for path in LOCKS}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_holds_only_exact_versions(path: Path) -> None:
    """No address, no option, no local build, no open range."""
    assert locked(path)


def test_the_locks_of_one_environment_agree() -> None:
    """What two locks of .venv both name, they name in the same version."""
    dev, frameworks = (locked(lock.ROOT / f"requirements/{name}.lock") for name in ("dev", "frameworks"))
    shared = dev.keys() & frameworks.keys()
    assert "numpy" in shared
    assert {name: dev[name] for name in shared} == {name: frameworks[name] for name in shared}


@pytest.mark.parametrize("extra", lock.LOCKS)
def test_what_pyproject_asks_for_is_locked(extra: str) -> None:
    """A dependency added to pyproject.toml and not to its lock is noticed here."""
    project = tomllib.loads((lock.ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"][extra]]
    names = {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in asked} - {"stepscope"}
    assert names - locked(lock.ROOT / f"requirements/{extra}.lock").keys() == set()
