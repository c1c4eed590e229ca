"""After a fork the child writes for itself: own writer, no inherited threads, locks, buffers or files."""

import os
import sys
import weakref

from stepscope.sdk import context
from stepscope.sdk.run import Run


_runs: weakref.WeakSet[Run] = weakref.WeakSet()
_registered = False


def follow(run: Run) -> None:
    """See that the run works in forked children."""
    global _registered
    _runs.add(run)
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    context.after_fork()
    for run in list(_runs):
        run.after_fork()
        _flush_with_multiprocessing(run)


def _flush_with_multiprocessing(run: Run) -> None:
    """Write what is left when a multiprocessing child ends: it leaves by os._exit, past atexit.

    The child first forgets all finalizers, then runs its after-fork calls; so ours is made in one of those.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(run, lambda child: util.Finalize(None, child.finish, exitpriority=0))
