"""Runs as the hub of a home folder knows them, including those received over the network without journals here."""

import contextlib
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.cli import text
from stepscope.cli.listed_run import VALUES, ListedRun
from stepscope.cli.run_document import imported_share
from stepscope.cli.stored_run import bytes_here
from stepscope.hub.client import MOST, RUNS, HubClient, HubError, await_hub, open_client, open_http_client, resolve_run
from stepscope.hub.home import address_of
from stepscope.journal.key_summary import leading
from stepscope.journal.resolve_run import UnknownRun, find_run

PROJECTS = 8
"""How many projects are searched for their leading keys."""
_MAX_KEYS = 50
_MAX_KEY_BYTES = 500
"""How long a key may be in the address of a question with others; no list has room for a longer one."""


@contextlib.contextmanager
def open_run(home: Path, text: str) -> Iterator[tuple[HubClient, str]]:
    """Open the hub of a home folder, or its engine when no hub runs, and find a run by id, name or `latest`."""
    await_hub(home)
    only = None if address_of(home) is not None else _among_journals(home, text)
    with open_client(home, only=only) as client:
        if client.problem:
            print(f"stepscope: the newest records are missing from this output: {client.problem}", file=sys.stderr)
        yield client, only or resolve_run(client, home, text)


def _among_journals(home: Path, text: str) -> str | None:
    """The run that a text refers to among the journals of a home folder; None when only the store may know it."""
    try:
        return find_run(home, text)
    except UnknownRun:
        return None


class Known(NamedTuple):
    """What a hub knows: the ids of all runs, and list rows of the latest ones."""

    ids: frozenset[str]
    latest: list[ListedRun]
    archived: int


def known(home: Path, limit: int, *, archived: bool = False) -> Known | None:
    """Query the hub for its runs; None, with a message, when no hub has the home open or it does not answer."""
    client = open_http_client(home)
    if client is None:
        return None
    try:
        rows = client.get(RUNS, limit=MOST, sort="-started", archived="show")["runs"]
        shown = "show" if archived else "hide"
        keys = leading_keys(client, rows)
        latest = client.get(RUNS, limit=min(limit, MOST), sort="-started", metric=keys, archived=shown)["runs"]
    except HubError as error:
        print(text.clean_lines(f"stepscope: {error}"), file=sys.stderr)
        return None
    ids = frozenset(row["id"] for row in rows)
    return Known(ids, [stored_row(home, row) for row in latest], sum(row["archived"] for row in rows))


def leading_keys(client: HubClient, rows: list[dict[str, Any]]) -> list[str]:
    """The most important keys, first of the latest run of each of the latest projects, then of all runs."""
    latest: dict[str, str] = {}
    for row in rows:
        if row["counts"].get("points"):
            latest.setdefault(row["project"], row["id"])
    found: dict[str, None] = {}
    for id in list(latest.values())[:PROJECTS]:
        keys = [each["key"] for each in client.get(f"{RUNS}/{{run}}/keys", run=id)["keys"]]
        found |= dict.fromkeys(leading([key for key in keys if _is_listed(key)], VALUES))
    every = [each["name"] for each in client.get("/api/fields")["metrics"]]
    found |= dict.fromkeys(leading([key for key in every if _is_listed(key)], _MAX_KEYS))
    return list(found)[:_MAX_KEYS]


def _is_listed(key: str) -> bool:
    """Return whether a key is not of the machine, and short enough to be asked for."""
    return not key.startswith(("system/", "stepscope/")) and len(urllib.parse.quote(key)) <= _MAX_KEY_BYTES


def stored_row(home: Path, row: dict[str, Any]) -> ListedRun:
    """A run of the hub as a list shows it."""
    values = {each["key"]: float(each["value"]) for each in row["values"].values() if each["value"] is not None}
    return ListedRun(
        run=row["id"],
        project=row["project"],
        name=row["name"],
        notes=row["notes"],
        tags=row["tags"],
        archived=row["archived"],
        status=row["status"],
        imported=imported_share(row),
        attempts=row["attempts"],
        ranks=row["ranks"],
        last_step=row["step"],
        values={key: values[key] for key in leading(values, VALUES)},
        units={each["key"]: each["unit"] for each in row["values"].values() if each["unit"]},
        alerts=row["counts"].get("alerts", 0),
        findings=row["findings"],
        started=_ns(row["started"]),
        ended=_ns(row["seen"]),
        size=bytes_here(home, row["id"]),
    )


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
