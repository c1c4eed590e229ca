"""The store of a hub: the one in its home, or the one at the address of a ClickHouse server."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from stepscope.hub.home import HubHome
from stepscope.hub.store.migration import refuse_unfinished
from stepscope.hub.store.read.run_catalog import take_saved_runs
from stepscope.hub.store.store import Store, open_server, open_store
from stepscope.model.errors import ConfigError

VARIABLE = "STEPSCOPE_STORE"
"""Holds the address where no option does, and keeps the password off the command line."""
_PATIENCE_SECONDS = 120.0
"""How long replicas that are behind are waited for, as after a restart of everything."""


def store_address(given: str | None = None) -> str:
    """The address of the store: the option, else the variable; empty for the one in the home."""
    return given or os.environ.get(VARIABLE, "")


def open_home_store(place: HubHome, where: str = "", advertised: str = "") -> Store:
    """Open the store of a home; one other than before, or a new one, makes every journal be read again.

    A hub that other hubs can reach shares a store on a server with them; other processes need it for themselves.
    ConfigError for a store that is an incomplete copy of another.
    """
    store = _open_server(place, where, advertised) if where else _open_folder(place)
    try:
        refuse_unfinished(store.engine)
    except BaseException:
        store.close()
        raise
    return store


def _open_folder(place: HubHome) -> Store:
    if not place.store.exists() or place.read_from not in ("", _EMBEDDED):
        place.forget_cursors(_EMBEDDED)
    with _quiet():
        store = open_store(place.store)
        take_saved_runs(store.engine, place.saved_runs)
        return store


def _open_server(place: HubHome, where: str, advertised: str) -> Store:
    from stepscope.hub.store.cluster.address import parse
    from stepscope.hub.store.cluster.ownership import this_process

    member = this_process(place.identity(), advertised)
    store = open_server(where, member=member, shared=bool(advertised), patience=_PATIENCE_SECONDS)
    try:
        known = f"{parse(where)} {store.created}"
        if place.read_from != known:
            place.forget_cursors(known)
    except BaseException:
        store.close()
        raise
    return store


_EMBEDDED = "embedded"


@contextlib.contextmanager
def opened(home: Path) -> Iterator[Store]:
    """Hold the hub's folder of a home, and its store; ConfigError when there is none or a hub has it open."""
    where = store_address()
    if not where and not (home / "hub" / "store").is_dir():
        raise ConfigError(f"there is no store in {home}: `stepscope hub --home {home}` makes one")
    with contextlib.ExitStack() as undo:
        place = HubHome(home)
        undo.callback(place.close)
        store = open_home_store(place, where)
        undo.callback(store.close)
        yield store


@contextlib.contextmanager
def held(where: str, hub: str, *, must_exist: bool) -> Iterator[Store]:
    """Hold the store of a home folder or at an address, which no hub may have open."""
    from stepscope.hub.store.cluster import address
    from stepscope.hub.store.cluster.ownership import this_process

    with contextlib.ExitStack() as undo:
        if address.is_address(where):
            store = open_server(where, member=this_process(hub))
        else:
            home = Path(where).expanduser().absolute()
            if must_exist and not (home / "hub" / "store").is_dir():
                raise ConfigError(f"there is no store in {home}: name a home folder, or an address: {address.EXAMPLE}")
            place = HubHome(home)
            undo.callback(place.close)
            store = _open_folder(place)
        undo.callback(store.close)
        yield store


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the engine from printing its own words beside ours when it cannot open a store."""
    kept = os.dup(2)
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null_device)
