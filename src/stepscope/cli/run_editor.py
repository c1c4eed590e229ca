"""Changing a run: through the hub that has the home open, else in the files of the home."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepscope.cli.listed_run import listed_run
from stepscope.hub.client import RUNS, HubClient, open_client, open_http_client, resolve_run, user
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.journal.run_edits import Edits, delete_files
from stepscope.model.errors import StepscopeError
from stepscope.model.run_description import Change, Description
from stepscope.model.states import UNFINISHED

_RUN = f"{RUNS}/{{run}}"


class StillRunning(StepscopeError):
    """A running run cannot be deleted."""


@contextlib.contextmanager
def open_editor(home: Path, text: str) -> Iterator["HubRun | LocalRun"]:
    """Find a run by id, name or `latest`; without a hub, also in the hub's store."""
    remote = open_http_client(home)
    if remote is not None:
        yield HubRun(remote, resolve_run(remote, home, text))
        return
    try:
        found = find_run(home, text)
    except UnknownRun:
        if not (home / "hub" / "store").is_dir():
            raise
        with open_client(home) as client:
            yield HubRun(client, resolve_run(client, home, text))
        return
    yield LocalRun(home, found)


class HubRun:
    """A run of a hub, or of its engine in this process."""

    def __init__(self, client: HubClient, run: str) -> None:
        self._client, self.run = client, run

    def describe(self) -> Description:
        """Its description now."""
        return _description(self._client.get(_RUN, run=self.run))

    def edit(self, change: Change) -> Description:
        """Change it, and return the new description."""
        return _description(self._client.change("PATCH", _RUN, msgspec.to_builtins(change), run=self.run)["run"])

    def delete(self) -> dict[str, int]:
        """Delete it, and return the bytes freed."""
        found: dict[str, int] = self._client.change("DELETE", _RUN, run=self.run)["freed"]
        return found


class LocalRun:
    """A run of a home that no hub has open."""

    def __init__(self, home: Path, run: str) -> None:
        self._home, self.run = home, run

    def describe(self) -> Description:
        """Its description now."""
        seen = listed_run(self._home, self.run)
        return Description(seen.name, seen.notes, seen.tags, seen.archived)

    def edit(self, change: Change) -> Description:
        """Change it, and return the new description."""
        Edits(self._home).append(self.run, user(), change, after=listed_run(self._home, self.run).edited)
        return self.describe()

    def delete(self) -> dict[str, int]:
        """Delete it, and return the bytes freed; rows in a closed store are deleted when the hub starts next."""
        state = listed_run(self._home, self.run).status
        if state in UNFINISHED:
            raise StillRunning(f"the run {self.run} is {state}: end it before you delete it")
        if (self._home / "hub" / "store").is_dir():
            with contextlib.suppress(ImportError):
                return _delete_stored(self._home, self.run)
        moment = Edits(self._home).append(self.run, user(), deleted=True).time
        found: dict[str, int] = msgspec.to_builtins(delete_files(self._home, self.run, moment))
        return found


def _delete_stored(home: Path, run: str) -> dict[str, int]:
    from stepscope.hub.home_store import opened
    from stepscope.hub.runs.deletion import delete_run  # needs the hub's packages, which may be absent

    with opened(home) as store:
        freed: dict[str, int] = msgspec.to_builtins(delete_run(home, Edits(home), run, user(), store))
        return freed


def _description(row: dict[str, Any]) -> Description:
    return Description(row["name"], row["notes"], row["tags"], row["archived"])
