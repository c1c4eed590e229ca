"""A real ClickHouse server for the tests: the one that STEPSCOPE_TEST_CLICKHOUSE names, or one that is started."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

pytest.importorskip("clickhouse_driver", reason="a server as the store needs clickhouse-driver")

from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.store import Store, open_server
from stepscope.testing.clickhouse import PROGRAM, ServerProcess, free_port, program, running
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing, running_cluster
from tests.hub.cluster.tls import make_tls, with_tls
from tests.shared import shared

PASSWORD = "s3cret"
HUB = "0123456789abcdef"
"""The hub whose stores these are; it can open one again at once."""


AddressOf = Callable[[str], str]


@pytest.fixture(scope="module")
def address_of(server: AddressOf) -> AddressOf:
    """Gives the address of a database; the tests of a cluster have another one."""
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> AddressOf:
    """One server for all tests of this folder."""
    if named := os.environ.get("STEPSCOPE_TEST_CLICKHOUSE"):
        return lambda database: f"{named.rstrip('/')}/{database}"
    if program() is None:
        pytest.skip(f"{PROGRAM} is not installed")

    def make() -> AbstractContextManager[ServerProcess]:
        return running(ServerProcess(tmp_path_factory.mktemp("clickhouse"), free_port(), PASSWORD))

    return shared("ClickHouse server", make).url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> ClusterProcesses:
    """ZooKeeper and four servers for all tests of this folder; one that kills a part of it starts it again."""
    if lacking := missing():
        pytest.skip(f"not installed: {lacking}")

    def make() -> AbstractContextManager[ClusterProcesses]:
        folder = tmp_path_factory.mktemp("cluster")
        tls = make_tls(folder)
        dress = (lambda server: server) if tls is None else (lambda server: with_tls(server, tls))
        return running_cluster(folder, password=PASSWORD, dress=dress)

    return shared("cluster", make)


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails while a part of the shared cluster is killed leaves it whole for the others."""
    found = request.getfixturevalue("cluster") if "cluster" in request.fixturenames else None
    yield
    if found is not None:
        found.start()


@pytest.fixture(scope="class")
def database(request: pytest.FixtureRequest, address_of: AddressOf) -> Iterator[str]:
    """The address of a database that no other test has."""
    url = address_of(re.sub(r"\W", "_", f"t_{request.node.name}_{os.getpid()}"))
    yield url
    drop(url)


def drop(url: str) -> None:
    """Remove a database from a server; those of a cluster go with it."""
    place = parse(url)
    if not place.cluster:
        engine = Server(place)
        engine.execute(f"DROP DATABASE {place.database}")
        engine.close()


@pytest.fixture(scope="class")
def store(database: str) -> Iterator[Store]:
    """One store for the tests of a class; each test has a run of its own."""
    opened = open_server(database, member=this_process(HUB))
    yield opened
    opened.close()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """A run that no other test writes to."""
    return str(request.node.name)


@pytest.fixture
def reopen(request: pytest.FixtureRequest, address_of: AddressOf) -> Iterator[Callable[[Store | None], Store]]:
    """Open a database again and again."""
    url = address_of(re.sub(r"\W", "_", f"t_{request.node.name}_{os.getpid()}"))
    opened: list[Store] = []

    def again(before: Store | None) -> Store:
        if before is not None:
            before.close()
        opened.append(open_server(url))
        return opened[-1]

    yield again
    opened[-1].close()
    drop(url)
