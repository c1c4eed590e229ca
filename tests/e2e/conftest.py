"""Faulty file systems: a small one, and one that never answers. Mounting both needs root."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_MOUNT_FLAGS = 2 | 4  # no set-user-id programs, no devices
_FORCE_DETACH = 1 | 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def mounted(kind: str, place: Path, options: str) -> Iterator[Path]:
    """Mount a file system for a block, or skip the test, saying what is missing."""
    if os.geteuid() != 0:
        pytest.skip(f"mounting a {kind} needs root")
    place.mkdir()
    if _libc.mount(b"stepscope-test", bytes(place), kind.encode(), _MOUNT_FLAGS, options.encode()) != 0:
        pytest.skip(f"a {kind} cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield place
    finally:
        _libc.umount2(bytes(place), _FORCE_DETACH)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    with mounted("tmpfs", tmp_path / "small", "size=2m") as place:
        yield place


@pytest.fixture
def tight_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a store, and less than it keeps free."""
    with mounted("tmpfs", tmp_path / "tight", "size=64m") as place:
        yield place


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A read-only file system, also for root."""
    with mounted("tmpfs", tmp_path / "read-only", "size=512k,ro") as place:
        yield place


@pytest.fixture
def hung_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system whose server never answers, as an NFS server that went away: every access waits for ever.

    Nobody but the program under test may look at it. Only SIGKILL or the end of the process ends the wait.
    """
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no access to /dev/fuse, which the hung disk is made of")
    server = os.open("/dev/fuse", os.O_RDWR)
    with contextlib.ExitStack() as stack:
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
        place = stack.enter_context(mounted("fuse", tmp_path / "hung", options))
        stack.callback(os.close, server)  # before the file system is unmounted: no access waits any more
        yield place
