"""Hubs that start at the same time on an empty store make its tables once, and each shard has one writer."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepscope.hub.store.cluster.documents import Documents
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.schema import UPGRADES
from stepscope.hub.store.store import Store, open_server
from stepscope.model.ports import Batch
from stepscope.testing.stores import losses, writer
from tests.hub.cluster.conftest import AddressOf, drop

HUBS = 4


@pytest.fixture
def stores(server: AddressOf) -> Iterator[list[Store]]:
    """An empty store that hubs open at the same moment, as each of them has it; test_shared_state has a cluster's."""
    url = server("first_start")
    ready = threading.Barrier(HUBS)

    def start(index: int) -> Store:
        ready.wait(60)
        store = open_server(f"{url}?lease=600", member=this_process(), shared=True)
        Documents(store.engine)
        return store

    with ThreadPoolExecutor(HUBS) as hubs:
        opened = list(hubs.map(start, range(HUBS)))
    yield opened
    for store in opened:
        store.close()
    drop(url)


def test_the_first_start(stores: list[Store]) -> None:
    """All see the same tables; one of them writes, and all read what it wrote."""
    for store in stores:
        store.beat()
    (writes,) = [store for store in stores if store.held()]
    assert set(writes.engine.query("SELECT DISTINCT version FROM versions")["version"]) == set(UPGRADES)
    writes.write(Batch(writer("first"), 0, losses([(0, 1.0)])))
    for store in stores:
        assert [row.id for row in list_runs(store.engine)] == ["first"]
