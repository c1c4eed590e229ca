"""Real small disks, mounted for a test."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def mount(*arguments: str) -> None:
    """Call mount; the test is skipped where that is not allowed."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"a small disk needs mount: {error}")
    if done.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path))
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
