"""Open the store of a hub's folder, for the hub itself or for a command while no hub runs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from stepscope.hub.home import HubHome
from stepscope.hub.store.store import Store, open_store
from stepscope.model.errors import ConfigError


def open_kept(place: HubHome) -> Store:
    """Open the store of a folder that is ours; a new one makes every journal be read again."""
    if not place.store.exists():
        place.forget_cursors()
    with _quiet():
        return open_store(place.store)


@contextlib.contextmanager
def opened(home: Path) -> Iterator[Store]:
    """Hold the hub's folder of a home, and its store; ConfigError when there is none or a hub has it open."""
    if not (home / "hub" / "store").is_dir():
        raise ConfigError(f"there is no store in {home}: `stepscope hub --home {home}` makes one")
    with contextlib.ExitStack() as undo:
        place = HubHome(home)
        undo.callback(place.close)
        store = open_kept(place)
        undo.callback(store.close)
        yield store


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the engine from printing its own words beside ours when it cannot open a store."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
