"""Resolve a run that a hub has, or that is anywhere: by its id, a prefix of the id, its name, or `latest`.

`latest` is the run that began last, of all that the hub of the home folder has and of those whose journals are in it;
without a hub, of those with journals. The probes of `doctor` and runs without records are skipped.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from stepscope.hub.client import MOST, RUNS, HttpClient, HubClient, HubError, open_http_client
from stepscope.journal import layout
from stepscope.journal.resolve_run import LATEST, PROBES, UnknownRun, choose, find_run, run_times
from stepscope.model.formatting import size

PATIENCE_SECONDS = 10.0
"""How long a hub is given to read the journals that may have the run."""
ANSWER_SECONDS = 10.0
"""How long a hub may take to say which run is the latest, before only journals are looked at."""
PAUSE_SECONDS = 0.1


def resolve_run(
    client: HubClient,
    home: Path,
    text: str,
    *,
    patience: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """Return the id of a run that the hub has; one that it may not have read yet is waited for."""
    until = clock() + patience
    while True:
        try:
            return _of_hub(client, home, text)
        except UnknownRun:
            unread = _unread(client, home, text)
            if not unread:
                raise
            if clock() >= until:
                raise UnknownRun(f"no run {text!r} at the hub of {home} yet: {unread}") from None
        pause(PAUSE_SECONDS)


def expand_latest(home: Path, text: str) -> str:
    """Return the run that `latest` stands for; any other text as it is."""
    client = open_http_client(home, ANSWER_SECONDS) if text == LATEST else None
    if client is None:
        return text
    try:
        return _latest(client, home)
    except HubError:
        return text


def find_anywhere(home: Path, text: str) -> str:
    """Return the id of a run among the journals of a home folder, else among those that only its hub has."""
    text = expand_latest(home, text)
    try:
        return find_run(home, text)
    except UnknownRun as unknown:
        client = open_http_client(home)
        if client is not None:
            with contextlib.suppress(UnknownRun):
                return resolve_run(client, home, text)
        raise unknown


def still_reading(client: HubClient) -> str:
    """Return that the hub is still reading journals, in words; empty when it has read them all."""
    if not isinstance(client, HttpClient):
        return ""
    try:
        folder = client.get("/api/health")["folder"]
    except HubError:
        return ""
    if not folder["reading"]:
        return ""
    left = folder["unread_bytes"]
    return "the hub is still reading journals" + (f", {size(left)} are left" if left else "")


def _of_hub(client: HubClient, home: Path, text: str) -> str:
    if text == LATEST:
        found = _latest(client, home)
        if isinstance(client, HttpClient) and not _knows(client, found):
            raise UnknownRun(f"{found} is the latest run in {home}")
        return found
    rows = client.get(RUNS, limit=MOST, sort="-started", archived="show")["runs"]
    names = {row["id"]: row["name"] for row in sorted(rows, key=lambda row: row["id"] == PROBES)}
    if len(rows) == MOST and text not in names and _knows(client, text):
        return text
    return choose(text, list(names), names.get, str(home))


def _latest(client: HubClient, home: Path) -> str:
    """Return the run that began last: a journal that the hub has not read yet counts from when its folder was made."""
    here = {run: ns for run, ns in run_times(home).items() if run != PROBES and layout.list_writers(home, run)}
    newest = max(here, key=lambda run: (here[run], run), default=None)
    if newest is not None and not isinstance(client, HttpClient):
        return newest
    rows = client.get(RUNS, limit=2, sort="-started", archived="show")["runs"]
    stored = next((row for row in sorted(rows, key=lambda row: row["id"] == PROBES)), None)
    if stored is None:
        if newest is None:
            raise UnknownRun(f"there are no runs in {home}")
        return newest
    id, started = str(stored["id"]), stored["started"] or 0.0
    return newest if newest is not None and here[newest] / 1e9 > started and not _knows(client, newest) else id


def _unread(client: HubClient, home: Path, text: str) -> str:
    """Return, in words, that the hub may not have read the run yet; empty when it has read all there is."""
    if not isinstance(client, HttpClient):
        return ""
    if reading := still_reading(client):
        return reading
    try:
        run = find_run(home, text)
    except UnknownRun:
        return ""
    return f"the hub has not read the journals of {run}" if run != PROBES else ""


def _knows(client: HubClient, id: str) -> bool:
    """Look up a run that may be older than all listed ones."""
    try:
        client.get(f"{RUNS}/{{run}}", run=id)
    except HubError:
        return False
    return True
