"""Tells what a signal raised, which must reach the program, from what the program's own objects raised."""

import opcode
import os
import signal
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_HOOKS = os.path.join(_PACKAGE, "sdk", "process_hooks.py")
_RAISE = opcode.opmap["RAISE_VARARGS"]

on_contained_exit: list[Callable[[], None]] = []
"""Called when an object called `sys.exit`, and the program goes on."""


def pass_on(error: BaseException) -> None:
    """Raise an exception again that interrupted our code; return for one that a call of ours has to contain.

    Objects of the program may raise anything in their methods, also SystemExit and KeyboardInterrupt: `log` and the
    other calls count that as rejected. Ctrl-C, and what a signal handler raises, must end the program all the same.
    """
    if not isinstance(error, Exception) and _is_interrupt(error):
        raise error
    if isinstance(error, SystemExit):
        for call in list(on_contained_exit):
            call()


def _is_interrupt(error: BaseException) -> bool:
    """Return whether an exception came from outside the code that it left."""
    entries = _entries(error.__traceback__)
    if not entries or entries[-1].tb_frame.f_code.co_filename.startswith(_PACKAGE):
        return True  # nothing in our code raises these by itself
    codes = {entry.tb_frame.f_code for entry in entries}
    if not codes.isdisjoint(_signal_codes()):
        return True
    last = entries[-1]
    is_raised = last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE
    return isinstance(error, KeyboardInterrupt) and not is_raised  # Python's own handler raises between instructions


def _entries(traceback: TracebackType | None) -> list[TracebackType]:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    while entries and entries[-1].tb_frame.f_code.co_filename == _HOOKS:  # it wraps sys.exit, once for each run
        entries.pop()
    return entries


def _signal_codes() -> set[CodeType]:
    """Return the code of the program's signal handlers."""
    found = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return {code for code in found if code is not None}


def _code_of(given: Any) -> CodeType | None:
    given = getattr(given, "func", given)  # a partial
    function = getattr(given, "__func__", given)  # a method
    if not hasattr(function, "__code__"):
        function = vars(type(given)).get("__call__")
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
