"""Exceptions already recorded by a run, so that one that propagates through several scopes is recorded once."""

import os

_KEY = "__stepscope_noted__"


def first(error: BaseException, run_id: str) -> bool:
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
    except Exception:  # it cannot be marked: better recorded twice than never
        pass
    return True
