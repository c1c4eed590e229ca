"""File systems in real trouble: one that is small, one that never answers. Both need root to be mounted."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_MOUNT_FLAGS = 2 | 4  # no set-user-id programs, no devices
_FORCE, _DETACH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def mount(kind: str, place: Path, options: str) -> None:
    """Mount a file system, or skip the test, saying what is missing."""
    if os.geteuid() != 0:
        pytest.skip(f"mounting a {kind} needs root")
    place.mkdir()
    if _libc.mount(b"stepscope-test", bytes(place), kind.encode(), _MOUNT_FLAGS, options.encode()) != 0:
        pytest.skip(f"a {kind} cannot be mounted here: {os.strerror(ctypes.get_errno())}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small"
    mount("tmpfs", place, "size=2m")
    yield place
    _libc.umount2(bytes(place), _DETACH)


@pytest.fixture
def tight_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a store, and less than it keeps free."""
    place = tmp_path / "tight"
    mount("tmpfs", place, "size=64m")
    yield place
    _libc.umount2(bytes(place), _DETACH)


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system nobody can write to, root neither."""
    place = tmp_path / "read-only"
    mount("tmpfs", place, "size=512k,ro")
    yield place
    _libc.umount2(bytes(place), _DETACH)


@pytest.fixture
def hung_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system whose server never answers, as an NFS server that went away: every access waits for ever.

    Nobody but the program under test may look at it. Only SIGKILL or the end of the process ends the wait.
    """
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no access to /dev/fuse, which the hung disk is made of")
    place = tmp_path / "hung"
    server = os.open("/dev/fuse", os.O_RDWR)
    try:
        mount("fuse", place, f"fd={server},rootmode=40000,user_id=0,group_id=0")
        yield place
    finally:
        os.close(server)
        _libc.umount2(bytes(place), _FORCE | _DETACH)
