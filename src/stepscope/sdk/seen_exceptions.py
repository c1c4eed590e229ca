"""Which exceptions a run has recorded: one that passes several places on its way out is recorded once."""

import os

_KEY = "__stepscope_noted__"


def first(error: BaseException, run_id: str) -> bool:
    """Tell whether a run has not recorded an exception yet, and note on the exception that now it has.

    Never raises. The same object is recorded once, even when it is raised again; a copy of it, also one that came out
    of a pickle or a fork, is another.
    """
    note = (run_id, os.getpid(), id(error))
    try:
        # Not by setattr: a frozen dataclass refuses that.
        notes = object.__getattribute__(error, "__dict__")
        if notes.get(_KEY) == note:
            return False
        notes[_KEY] = note
    except Exception:  # it takes no note: better recorded twice than never
        pass
    return True
