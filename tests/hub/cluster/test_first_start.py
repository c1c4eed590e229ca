"""Hubs that start at the same time make or upgrade the tables of a store once, and each shard has one writer."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepscope.hub.store import maintenance
from stepscope.hub.store.cluster.documents import Documents
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.schema import EIGHTH, NINTH, SEVENTH, SIXTH, UPGRADES
from stepscope.hub.store.store import Store, open_server
from stepscope.model.ports import Batch
from tests.hub.cluster.conftest import AddressOf, drop
from tests.hub.store.contract import floats, line, losses, writer

HUBS = 4


@pytest.fixture
def url(server: AddressOf, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty store; test_shared_state has a cluster's."""
    made = server(request.node.name)
    yield made
    drop(made)


@contextlib.contextmanager
def started_at_once(url: str) -> Iterator[list[Store]]:
    """A store that hubs open at the same moment, as each of them has it."""
    ready = threading.Barrier(HUBS)

    def start(index: int) -> Store:
        ready.wait(60)
        store = open_server(f"{url}?lease=600", member=this_process(), shared=True)
        Documents(store.engine)
        return store

    with ThreadPoolExecutor(HUBS) as hubs:
        opened = list(hubs.map(start, range(HUBS)))
    try:
        for store in opened:
            store.beat()
        yield opened
    finally:
        for store in opened:
            store.close()


def writer_among(stores: list[Store]) -> Store:
    """The one hub that writes; the tables have all versions, each column once."""
    (writes,) = [store for store in stores if store.held()]
    assert set(writes.engine.query("SELECT DISTINCT version FROM versions")["version"]) == set(UPGRADES)
    return writes


def test_the_first_start(url: str) -> None:
    """All see the same tables; one of them writes, and all read what it wrote."""
    with started_at_once(url) as stores:
        writer_among(stores).write(Batch(writer("first"), 0, losses([(0, 1.0)])))
        for store in stores:
            assert [row.id for row in list_runs(store.engine)] == ["first"]


def test_the_upgrade_of_an_older_store(url: str) -> None:
    """Hubs of a newer version add what an older one lacked; its rows are there, and more are written beside them."""
    older = open_server(url)
    older.write(Batch(writer("first"), 0, losses([(0, 1.0)])))
    finding = "run, place, version, id, kind, expects"
    older.engine.execute(f"INSERT INTO findings ({finding}) SELECT 7, 1, 1, 2, 'b', 'c'")
    for table, columns in SIXTH.items():
        older.engine.execute(f"ALTER TABLE {table} {', '.join(f'DROP COLUMN {name}' for name in columns)}")
    for table in (*SEVENTH, *EIGHTH, *NINTH):
        older.engine.execute(f"DROP TABLE {table}")
    older.engine.execute("ALTER TABLE versions DELETE WHERE version >= 6")
    older.close()
    with started_at_once(url) as stores:
        writes = writer_among(stores)
        writes.write(Batch(writer("first"), 1, losses([(1, 2.0)])))
        for store in stores:
            assert floats(line(store, "first")) == [1.0, 2.0]
            assert list(store.engine.query(f"SELECT {finding} FROM findings").rows()) == [(7, 1, 1, 2, "b", "")]
        assert maintenance.check(writes.engine) == []
