"""How commands ask a hub, or its engine when none runs: opening the door and finding the run that is meant."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from stepscope.hub.door import Door, open_door
from stepscope.hub.run_lookup import find


@contextlib.contextmanager
def asking(home: Path, text: str) -> Iterator[tuple[Door, str]]:
    """Open the door to the records of a home folder, and find the run that is meant."""
    with open_door(home) as door:
        if door.trouble:
            print(f"stepscope: the newest records are not in the answer: {door.trouble}", file=sys.stderr)
        yield door, find(door, home, text)
