"""Exceptions as records: their attributes, and marks by which one that leaves several scopes is recorded once."""

import os
import traceback
from typing import Any

from stepscope.sdk.attributes import LONGEST
from stepscope.sdk.interrupts import pass_on

_KEY = "__stepscope_seen__"


def is_first_sight(error: BaseException, run_id: str) -> bool:
    """Return whether a run sees an exception for the first time, and mark it as seen. Never raises.

    The same object counts as seen even if it is raised again; a copy, also one from a pickle or a fork, does not.
    """
    note = (run_id, os.getpid(), id(error))
    try:
        # Not by setattr: a frozen dataclass refuses that.
        notes = object.__getattribute__(error, "__dict__")
        if notes.get(_KEY) == note:
            return False
        notes[_KEY] = note
    except BaseException as raised:  # it cannot be marked: better recorded twice than never
        pass_on(raised)
    return True


def exception_attrs(error: BaseException) -> dict[str, Any]:
    """Return the OpenTelemetry attributes of an exception."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        stack = "".join(traceback.format_exception(error))
    except BaseException as inner:
        pass_on(inner)
        stack = f"(no stack: {type(inner).__name__})"
    return {
        "exception.type": name,
        "exception.message": message_of(error),
        "exception.stacktrace": stack[-LONGEST:],
    }


def message_of(error: BaseException) -> str:
    """Return the message of an exception, even one whose `__str__` raises."""
    try:
        return str(error)[:LONGEST]
    except BaseException as raised:
        pass_on(raised)
        return "(no message)"
