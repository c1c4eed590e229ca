"""How commands ask a hub, or its engine when none runs: opening the door and finding the run that is meant."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from stepscope.cli.options import choose
from stepscope.cli.probe import RUN as PROBES
from stepscope.hub.door import Door, open_door

RUNS = "/api/runs"
MOST = 10_000


@contextlib.contextmanager
def asking(home: Path, text: str) -> Iterator[tuple[Door, str]]:
    """Open the door to the records of a home folder, and find the run that is meant."""
    with open_door(home) as door:
        if door.trouble:
            print(f"stepscope: the newest records are not in the answer: {door.trouble}", file=sys.stderr)
        yield door, find(door, home, text)


def find(door: Door, home: Path, text: str) -> str:
    """Find the run that is meant: an id, a part an id begins with, a name, or `latest`."""
    rows = door.get(RUNS, limit=MOST, sort="-started")["runs"]
    names = {row["id"]: row["name"] for row in sorted(rows, key=lambda row: row["id"] == PROBES)}
    return choose(text, list(names), names.get, str(home))
