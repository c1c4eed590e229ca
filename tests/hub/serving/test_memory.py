"""Threads of a hub share few heaps, and what they freed goes back to the system."""

import gc
import subprocess
import sys
import weakref

import pytest

from stepscope.hub.serving.memory import MAX_ARENAS, give_back

PROGRAM = """
import ctypes, sys, threading
from stepscope.hub.serving.memory import give_back, share_heaps
if sys.argv[1] == "shared":
    share_heaps()
here, free = threading.Barrier(12), threading.Event()
def work():
    held = [bytes(20_000) for _ in range(500)]
    here.wait()
    free.wait()
threads = [threading.Thread(target=work) for _ in range(11)]
for each in threads:
    each.start()
here.wait()
libc = ctypes.CDLL(None)
libc.malloc_stats()
free.set()
for each in threads:
    each.join()
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
before = resident()
give_back()
print(resident() < before)
"""


def _run(how: str) -> tuple[int, str]:
    """Return how many heaps eleven threads have, and what the program prints."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return done.stderr.count("Arena"), done.stdout.strip()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_threads_share_few_heaps_and_free_pages_go_back() -> None:
    """Else each thread would keep what its largest request needed."""
    alone, _ = _run("alone")
    shared, gave_back = _run("shared")
    assert shared <= MAX_ARENAS < alone
    assert gave_back == "True"


class Ring:
    """Refers to itself, as what is left of a gRPC call does."""

    def __init__(self) -> None:
        self.me = self


def test_what_became_unreachable_is_freed() -> None:
    """The interpreter would wait for 20,000 new objects, and a hub makes few that are not freed at once."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        left = weakref.ref(Ring())
        assert left() is not None
        give_back()
        assert left() is None
    finally:
        gc.set_threshold(*before)
