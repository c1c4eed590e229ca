"""A real ClickHouse server for the tests: the one that STEPSCOPE_TEST_CLICKHOUSE names, or one that is started."""

import os
import re
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("clickhouse_driver", reason="a server as the store needs clickhouse-driver")

from stepscope.hub.store.address import parse
from stepscope.hub.store.server import Server
from stepscope.hub.store.store import Store, open_server
from stepscope.testing.clickhouse import PROGRAM, ServerProcess, free_port, program, running

PASSWORD = "s3cret"


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server, up to the name of a database."""
    if named := os.environ.get("STEPSCOPE_TEST_CLICKHOUSE"):
        yield named.rstrip("/") + "/"
        return
    if program() is None:
        pytest.skip(f"{PROGRAM} is not installed")
    with running(ServerProcess(tmp_path_factory.mktemp("clickhouse"), free_port(), PASSWORD)) as server:
        yield server.url("")


@pytest.fixture(scope="class")
def database(request: pytest.FixtureRequest, server_url: str) -> Iterator[str]:
    """The address of a database that no other test has."""
    name = re.sub(r"\W", "_", f"t_{request.node.name}_{os.getpid()}")
    yield server_url + name
    engine = Server(parse(server_url + name))
    engine.execute(f"DROP DATABASE {name}")
    engine.close()


@pytest.fixture(scope="class")
def store(database: str) -> Iterator[Store]:
    """One store for the tests of a class; each test has a run of its own."""
    opened = open_server(database)
    yield opened
    opened.close()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """A run that no other test writes to."""
    return str(request.node.name)


@pytest.fixture
def reopen(request: pytest.FixtureRequest, server_url: str) -> Iterator[Callable[[Store | None], Store]]:
    """Open a database again and again."""
    name = re.sub(r"\W", "_", f"t_{request.node.name}_{os.getpid()}")
    opened: list[Store] = []

    def again(before: Store | None) -> Store:
        if before is not None:
            before.close()
        opened.append(open_server(server_url + name))
        return opened[-1]

    yield again
    opened[-1].engine.execute(f"DROP DATABASE {name}")
    opened[-1].close()
