"""Hooks into the process: uncaught exceptions, sys.exit, the end of the interpreter, SIGTERM, fork."""

import _thread
import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from stepscope.sdk import context, exception_records, interrupts
from stepscope.sdk.run import Run

Undo = Callable[[], None]
_hooked: list[Undo] = []
"""Removes our hook on SIGTERM, if there is one."""
_held_back = threading.local()
_bootstrap: list[FrameType] = []
"""The stack frame in which multiprocessing runs this process, if it is a child."""
IN_HANDLER_SECONDS = 0.3
"""How long a signal handler waits; the flusher runs every tenth of a second."""


def watch(run: Run) -> Undo:
    """Install hooks for the ways a program can end; the returned function removes those that are still ours."""
    undos = [_watch_exceptions(run), _watch_threads(run), _watch_exit(run)]
    if run.settings.sigterm and threading.current_thread() is threading.main_thread():
        undos.append(_watch_sigterm(run))
    at_end = partial(leave, run)
    atexit.register(at_end)

    def undo() -> None:
        atexit.unregister(at_end)
        for each in undos:
            each()

    return undo


def _watch_exceptions(run: Run) -> Undo:
    earlier = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        _uncaught(run, error)
        earlier(kind, error, where)

    sys.excepthook = excepthook
    return lambda: _restore(sys, "excepthook", excepthook, earlier)


def _uncaught(run: Run, error: BaseException) -> None:
    """Record an uncaught exception, and end the run unless the program continues.

    It continues at an interactive prompt, with non-daemon threads, and when the hook was only called to print an
    exception: Python sets `sys.last_value` only when it ends.
    """
    if os.getpid() != run.pid:
        return
    fatal = getattr(sys, "last_value", None) is error and not hasattr(sys, "ps1") and not sys.flags.interactive
    main = threading.main_thread()
    waits = any(not thread.daemon and thread is not main for thread in threading.enumerate())
    if fatal and not waits:
        leave(run, error)
        return
    _note(run, error, "FATAL" if fatal else "ERROR", uncaught=fatal)
    if fatal:
        run.failed = True
        run.flush()


def _note(run: Run, error: BaseException, severity: str, **attrs: Any) -> None:
    """Record an exception unless the run has recorded it already."""
    if exception_records.is_first_sight(error, run.id):
        run.exception(error, severity=severity, **attrs)


def _watch_threads(run: Run) -> Undo:
    earlier = threading.excepthook

    def excepthook(arguments: Any) -> None:
        if arguments.exc_value is not None:
            thread = arguments.thread.name if arguments.thread is not None else ""
            _note(run, arguments.exc_value, "ERROR", thread=thread, uncaught=True)
        earlier(arguments)

    threading.excepthook = excepthook
    return lambda: _restore(threading, "excepthook", excepthook, earlier)


def _watch_exit(run: Run) -> Undo:
    """Remember the status given to sys.exit, which is not available at the end of the interpreter."""
    earlier = sys.exit

    def exit(status: Any = None, /) -> Any:
        if os.getpid() == run.pid and threading.current_thread() is threading.main_thread():
            run.exit_status = status
        earlier(status)

    def forget() -> None:
        run.exit_status = None

    def undo() -> None:
        interrupts.on_contained_exit.remove(forget)
        _restore(sys, "exit", exit, earlier)

    sys.exit = exit
    interrupts.on_contained_exit.append(forget)
    return undo


def leave(run: Run, error: BaseException | None = None) -> None:
    """End the run with its process: as failed after an uncaught exception or a status other than 0."""
    if os.getpid() != run.pid:
        return
    if isinstance(error, SystemExit):
        run.exit_status, error = error.code, None
    for frame in _bootstrap:
        run.exit_status = run.exit_status or frame.f_locals.get("exitcode")
    if error is not None:
        _note(run, error, "FATAL", uncaught=True)
    elif run.exit_status not in (None, 0):
        run.event("exit", {"status": str(run.exit_status)}, "ERROR")
    well = error is None and run.exit_status in (None, 0) and not run.failed
    run.finish("finished" if well else "failed")


def _watch_sigterm(run: Run) -> Undo:
    earlier = signal.getsignal(signal.SIGTERM)

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        if os.getpid() == run.pid and not run.preempted and not preempt(run):
            return  # it comes again
        if callable(earlier):
            earlier(number, frame)
        elif earlier is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_sigterm)

    def undo() -> None:
        _hooked.clear()
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is on_sigterm:
            signal.signal(signal.SIGTERM, earlier or signal.SIG_DFL)

    _hooked[:] = [undo]
    return undo


def child_of_multiprocessing() -> None:
    """Find the frame in which multiprocessing started this child, which knows its exit code at the end."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_bootstrap":
        frame = frame.f_back
    _bootstrap[:] = [] if frame is None else [frame]


def before_fork() -> None:
    """Block SIGTERM until the child has removed our hook; an earlier signal would be lost there."""
    if _hooked:
        _held_back.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def after_fork(*, child: bool) -> None:
    """Let SIGTERM end a child at once, as its parent expects: a pool would wait for a handler forever."""
    if child:
        _bootstrap.clear()
    while child and _hooked:
        _hooked.pop()()
    mask = vars(_held_back).pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def preempt(run: Run) -> bool:
    """Have the flusher end the run as preempted, and wait without taking a lock: this runs in a signal handler.

    If that takes long, for instance because the flusher waits for a lock held by the interrupted code, return False so
    that this code continues; the signal is sent again when the run has ended or `exit_timeout` is over.
    """
    run.preempted = True
    if not run.flusher.started:  # a child that recorded nothing
        return True
    deadline = time.monotonic() + run.settings.exit_timeout
    rounds = run.flusher.rounds + 2  # the current one may have begun before `preempted` was set
    if _wait_for(run, rounds, min(deadline, time.monotonic() + IN_HANDLER_SECONDS)):
        return True

    def resend_signal() -> None:
        _wait_for(run, rounds, deadline)
        os.kill(os.getpid(), signal.SIGTERM)

    _thread.start_new_thread(resend_signal, ())  # not a Thread: those take locks when they start
    return False


def _wait_for(run: Run, rounds: int, deadline: float) -> bool:
    while run.flusher.rounds < rounds and not run.flusher.ended:
        if time.monotonic() >= deadline:
            return False
        run.flusher.wake()
        time.sleep(0.002)
    return True


def _restore(place: Any, name: str, ours: Any, earlier: Any) -> None:
    """Restore an earlier hook, unless another was installed after ours, which then stays in the chain, idle."""
    if getattr(place, name) is ours:
        setattr(place, name, earlier)


_runs: weakref.WeakSet[Run] = weakref.WeakSet()
_registered = False


def follow(run: Run) -> None:
    """Make the run work in forked children, and end with the process if this is a child itself."""
    global _registered
    _runs.add(run)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _end_with_multiprocessing(run)
    if not _registered:
        _registered = True
        os.register_at_fork(before=before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def _in_parent() -> None:
    after_fork(child=False)


def _in_child() -> None:
    context.after_fork()
    after_fork(child=True)
    for run in list(_runs):
        run.after_fork()
        library = sys.modules.get("multiprocessing.util")
        if library is not None:
            # A new child first forgets all finalizers, then runs its after-fork calls; so ours is made in one.
            library.register_after_fork(run, _end_with_multiprocessing)


def _end_with_multiprocessing(run: Run) -> None:
    """End the run when this child of multiprocessing ends: it exits by os._exit, without excepthook and atexit."""
    child_of_multiprocessing()
    handled = sys.exception()

    def end() -> None:
        error = sys.exception()  # the one that ends the child, for finalizers run while it passes
        leave(run, None if error is handled else error)

    sys.modules["multiprocessing.util"].Finalize(None, end, exitpriority=0)
