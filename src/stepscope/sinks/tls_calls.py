"""Which threads are in OpenSSL: one that still is while Python ends crashes the process, so it is cut off before."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator

from stepscope.model.errors import Retry

_cuts: dict[threading.Thread, Callable[[], object]] = {}
"""For each thread that is in OpenSSL, what lets its call fail."""
_interrupted: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


@contextlib.contextmanager
def in_openssl(cut: Callable[[], object]) -> Iterator[None]:
    """Say that this thread is in OpenSSL, and what lets its call fail; Retry once it was interrupted."""
    thread = threading.current_thread()
    outer = _cuts.get(thread)
    _cuts[thread] = cut  # before the look at who was interrupted: `interrupt` does both the other way round
    try:
        if thread in _interrupted:
            raise Retry("Python is ending")
        yield
    finally:
        if outer is None:
            del _cuts[thread]
        else:
            _cuts[thread] = outer


def interrupt(thread: threading.Thread) -> bool:
    """Keep a thread out of OpenSSL from now on; return whether it is still in it, its call cut short."""
    _interrupted.add(thread)
    cut = _cuts.get(thread)
    if cut is not None:
        cut()
    return cut is not None
