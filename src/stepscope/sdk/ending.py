"""How a run ends when nobody calls finish: uncaught exceptions, sys.exit, the end of the interpreter, SIGTERM."""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from stepscope.sdk.run import Run


Undo = Callable[[], None]


def watch(run: Run) -> Undo:
    """Hook into the ways a program ends; the returned call takes every hook back that is still ours."""
    undos = [_watch_exceptions(run), _watch_threads(run), _watch_exit(run)]
    if run.settings.sigterm and threading.current_thread() is threading.main_thread():
        undos.append(_watch_sigterm(run))
    at_end = _at_end(run)
    atexit.register(at_end)

    def undo() -> None:
        atexit.unregister(at_end)
        for each in undos:
            each()

    return undo


def _watch_exceptions(run: Run) -> Undo:
    earlier = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if os.getpid() == run.pid and run.status == "running":
            run.exception(error, severity="FATAL", uncaught=True)
            run.finish("failed")
        earlier(kind, error, where)

    sys.excepthook = excepthook
    return lambda: _restore(sys, "excepthook", excepthook, earlier)


def _watch_threads(run: Run) -> Undo:
    earlier = threading.excepthook

    def excepthook(arguments: Any) -> None:
        if arguments.exc_value is not None:
            thread = arguments.thread.name if arguments.thread is not None else ""
            run.exception(arguments.exc_value, thread=thread, uncaught=True)
        earlier(arguments)

    threading.excepthook = excepthook
    return lambda: _restore(threading, "excepthook", excepthook, earlier)


def _watch_exit(run: Run) -> Undo:
    """Remember the status given to sys.exit: at the end of the interpreter nothing else tells it."""
    earlier = sys.exit

    def exit(status: Any = None, /) -> Any:
        if os.getpid() == run.pid and threading.current_thread() is threading.main_thread():
            run.exit_status = status
        earlier(status)

    sys.exit = exit
    return lambda: _restore(sys, "exit", exit, earlier)


def _at_end(run: Run) -> Callable[[], None]:
    def at_end() -> None:
        if os.getpid() == run.pid:
            failed = run.exit_status not in (None, 0)
            if failed:
                run.event("exit", {"status": str(run.exit_status)}, "ERROR")
            run.finish("failed" if failed else "finished")

    return at_end


def _watch_sigterm(run: Run) -> Undo:
    earlier = signal.getsignal(signal.SIGTERM)

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        if os.getpid() == run.pid:
            preempt(run)
        if callable(earlier):
            earlier(number, frame)
        elif earlier is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_sigterm)

    def undo() -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is on_sigterm:
            signal.signal(signal.SIGTERM, earlier or signal.SIG_DFL)

    return undo


def preempt(run: Run) -> None:
    """Have the flusher end the run as preempted, and wait for it without taking a lock: this may run in a handler."""
    run.preempted = True
    deadline = time.monotonic() + run.settings.exit_timeout
    while run.status == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    while run.recorder.buffer and time.monotonic() < deadline:
        time.sleep(0.01)


def _restore(place: Any, name: str, ours: Any, earlier: Any) -> None:
    """Put an earlier hook back, unless somebody hooked in after us: then ours stays in the chain, idle."""
    if getattr(place, name) is ours:
        setattr(place, name, earlier)
