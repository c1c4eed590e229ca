"""A run as it is stored: by the hub that has a home open, or in the store of a home whose hub has stopped."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stepscope.cli import text
from stepscope.cli.journal_answers import JournalAnswers
from stepscope.hub.client import HubClient, HubError, expand_latest, open_client, open_http_client, resolve_run
from stepscope.journal import layout
from stepscope.journal.layout import files_of
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.model.errors import StepscopeError

LARGE = 4 << 20
"""Journals of this many bytes take longer to read and to diagnose than the store to open."""


class Answers(Protocol):
    """Answers questions about a run: a hub, its engine in this process, or the journals of the run alone."""

    def get(self, path: str, *, run: str, **params: Any) -> Any:
        """GET JSON."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run, and where to ask about it."""

    client: Answers
    run: str

    def get(self, path: str, **params: Any) -> Any:
        """GET JSON about the run."""
        return self.client.get(path, run=self.run, **params)


@contextlib.contextmanager
def open_stored(home: Path, name: str, *, only_hub: bool = False) -> Iterator[StoredRun | None]:
    """Open a run of the hub, else of the home's store unless `only_hub`; None where only its journals can be read.

    The store is opened, and made where there is none, for runs with large journals; what it lacks of the run is read.
    """
    name, client = expand_latest(home, name), open_http_client(home)
    with contextlib.ExitStack() as undo:
        if client is not None:
            yield _of_hub(client, home, name)
        else:
            yield None if only_hub else _of_store(home, name, undo)


@contextlib.contextmanager
def open_answers(home: Path, name: str, *, journals_first: bool = False) -> Iterator[StoredRun]:
    """Open a run wherever it can be asked about: of the hub or the home's store, else of its journals.

    With `journals_first`, of the journals where they are here and not large.
    """
    name = expand_latest(home, name)
    if journals_first and (small := _small(home, name)):
        yield StoredRun(JournalAnswers(home, small), small)
        return
    with open_stored(home, name) as stored:
        yield stored or StoredRun(JournalAnswers(home, run := find_run(home, name)), run)


def _small(home: Path, name: str) -> str | None:
    """The run that a name stands for, where its journals are here and not large."""
    with contextlib.suppress(UnknownRun):
        return None if is_large(home, run := find_run(home, name)) else run
    return None


def _of_hub(client: HubClient, home: Path, name: str) -> StoredRun | None:
    try:
        return StoredRun(client, resolve_run(client, home, name, patience=0.0))
    except UnknownRun as unknown:
        try:
            find_run(home, name)  # its journals may be here, and not read yet
        except UnknownRun:
            raise unknown from None  # which names the runs of the hub, also those without journals here
    except HubError as error:
        print(text.clean_lines(f"stepscope: {error}"), file=sys.stderr)
    return None


def _of_store(home: Path, name: str, undo: contextlib.ExitStack) -> StoredRun | None:
    run = find_run(home, name)
    if not is_large(home, run):
        return None
    try:
        client = undo.enter_context(open_client(home, only=run))
    except StepscopeError:  # no packages for it, a store that another command has open, a home that is read-only
        return None
    return None if client.problem else StoredRun(client, run)


def is_large(home: Path, run: str) -> bool:
    """Whether the journals of a run are too large to be read and diagnosed at every look."""
    return bytes_here(home, run) >= LARGE


def bytes_here(home: Path, run: str) -> int:
    """The bytes of a run's journals on this disk."""
    if not layout.is_safe(run):
        return 0
    folders = (layout.writer_folder(home, run, name) for name in layout.list_writers(home, run))
    return sum(files_of(folder).size for folder in folders)
