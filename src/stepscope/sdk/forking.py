"""After a fork the child writes for itself: own writer, no inherited threads, locks, buffers or files."""

import os
import sys
import weakref

from stepscope.sdk import context, ending
from stepscope.sdk.run import Run

_runs: weakref.WeakSet[Run] = weakref.WeakSet()
_registered = False


def follow(run: Run) -> None:
    """See that the run works in forked children, and ends with the process when this is a child itself."""
    global _registered
    _runs.add(run)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _end_with_multiprocessing(run)
    if not _registered:
        _registered = True
        os.register_at_fork(before=ending.before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def _in_parent() -> None:
    ending.after_fork(child=False)


def _in_child() -> None:
    context.after_fork()
    ending.after_fork(child=True)
    for run in list(_runs):
        run.after_fork()
        library = sys.modules.get("multiprocessing.util")
        if library is not None:
            # A new child first forgets all finalizers, then runs its after-fork calls; so ours is made in one.
            library.register_after_fork(run, _end_with_multiprocessing)


def _end_with_multiprocessing(run: Run) -> None:
    """End the run when this child of multiprocessing ends: it leaves by os._exit, past excepthook and atexit."""
    ending.child_of_multiprocessing()
    handled = sys.exception()

    def end() -> None:
        error = sys.exception()  # the one that ends the child, for finalizers run while it passes
        ending.leave(run, None if error is handled else error)

    sys.modules["multiprocessing.util"].Finalize(None, end, exitpriority=0)
