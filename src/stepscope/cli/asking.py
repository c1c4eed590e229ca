"""How commands ask a hub, or its engine when none runs: opening the door and finding the run that is meant."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from stepscope.hub.client import Door, open_door, resolve_run


@contextlib.contextmanager
def asking(home: Path, text: str) -> Iterator[tuple[Door, str]]:
    """Open the door to the records of a home folder, and find the run that is meant."""
    with open_door(home) as door:
        if door.trouble:
            print(f"stepscope: the newest records are not in the answer: {door.trouble}", file=sys.stderr)
        yield door, resolve_run(door, home, text)
