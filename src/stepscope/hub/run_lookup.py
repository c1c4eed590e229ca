"""Which run is meant, among those that a hub or its engine knows."""

from pathlib import Path

from stepscope.hub.door import Door, Refusing
from stepscope.journal.resolve_run import PROBES, choose

RUNS = "/api/runs"
MOST = 10_000
"""As many runs as one answer has."""


def find(door: Door, home: Path, text: str) -> str:
    """Find the run that is meant: an id, a part an id begins with, a name, or `latest`."""
    rows = door.get(RUNS, limit=MOST, sort="-started", archived="show")["runs"]
    names = {row["id"]: row["name"] for row in sorted(rows, key=lambda row: row["id"] == PROBES)}
    if len(rows) == MOST and text not in names and _knows(door, text):
        return text
    return choose(text, list(names), names.get, str(home))


def _knows(door: Door, id: str) -> bool:
    """Ask for a run that may be older than all that were listed."""
    try:
        door.get(f"{RUNS}/{{run}}", run=id)
    except Refusing:
        return False
    return True
