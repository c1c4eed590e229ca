"""Memory of a hub: what a burst of records or questions needed goes back to the system."""

import ctypes
import gc
import sys
from functools import cache

_TRIM, _MMAP, _ARENAS = -1, -3, -8
"""The parameters of glibc's `mallopt`."""
MAX_ARENAS = 2
"""By default each of a hub's threads may have a heap of its own, and what one has freed no other can use."""
LARGE_BYTES = 1024 * 1024
"""Larger pieces are mapped, and unmapped when they are freed; by default this limit grows to 32 MB with them."""
EVERY_SECONDS = 60.0


def share_heaps() -> None:
    """Let the threads that are started from now on share few heaps. Does nothing where the C library is another one."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_ARENAS, MAX_ARENAS)
        libc.mallopt(_MMAP, LARGE_BYTES)
        libc.mallopt(_TRIM, LARGE_BYTES)


def give_back() -> None:
    """Free what lately became unreachable, and return free pages of the heaps to the system.

    By itself the interpreter looks for cycles when there are 20,000 new objects. Each gRPC call leaves some in cycles,
    and nearly all others are freed at once, so that hours may pass until then.
    """
    gc.collect(1)
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
