"""The hub that has a home folder open, found by the lock it holds."""

import fcntl
from pathlib import Path


def address_of(home: Path) -> str | None:
    """The address of the hub that has a home folder open; None when none does."""
    try:
        with open(home / "hub" / "lock", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return file.read().strip().partition(" ")[2] or None
    except OSError:
        return None
    return None
