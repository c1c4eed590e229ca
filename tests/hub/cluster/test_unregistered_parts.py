"""A server loses ZooKeeper while it registers rows: they are on one replica, and neither lost nor stored twice."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.engine import EngineError
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.store import Store
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse import LOOPBACK
from stepscope.testing.clickhouse_cluster import ClusterProcesses, Place, configured, missing
from tests.hub.cluster.test_stale_replica import joined
from tests.hub.store.contract import losses, writer

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
BETWEEN = "127.0.0.2"
"""Where the servers find ZooKeeper: the address of what passes their requests on."""
MULTI = (14).to_bytes(4, "big")
"""ZooKeeper's code of a transaction. That of an insert adds an entry to the log, and a part."""


class Wire:
    """Passes on what a server says to ZooKeeper; breaks the connection instead when a part is to be registered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server((BETWEEN, port))
        self.lose = b""
        """The table whose next part is not registered."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection((LOOPBACK, self._port))
                for act in (self._pass_on, self._pass_back):
                    threading.Thread(target=act, args=(near, far), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError), near, far, near.makefile("rb") as requests:
            while head := requests.read(4):
                body = requests.read(int.from_bytes(head, "big"))
                if self.lose and all(each in body for each in (MULTI, self.lose, b"/log/log-", b"/parts/")):
                    self.lose = b""
                    near.shutdown(socket.SHUT_RDWR)
                    far.shutdown(socket.SHUT_RDWR)
                    return
                far.sendall(head + body)

    def _pass_back(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                near.sendall(data)

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """One shard of two replicas."""
    folder = tmp_path_factory.mktemp("cluster")
    made = configured(folder, shards=1, place=lambda shard, replica: Place(zookeeper=BETWEEN))
    try:
        made.zookeeper.start()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def wire(cluster: ClusterProcesses) -> Iterator[Wire]:
    """What the servers are connected to ZooKeeper by; they run."""
    with closing(Wire(cluster.zookeeper.port)) as made:
        for server in cluster.servers[0]:
            server.launch()
        for server in cluster.servers[0]:
            server.wait()
        yield made


@pytest.fixture(scope="module")
def store(cluster: ClusterProcesses, wire: Wire) -> Iterator[Store]:
    """A store on them."""
    opened = joined(cluster.url())
    yield opened
    opened.close()


def steps(cluster: ClusterProcesses, run: str) -> list[list[int]]:
    """The steps of a run that each replica has."""
    found = []
    for server in cluster.servers[0]:
        with closing(Server(parse(server.url("stepscope_shard")))) as local:
            (number,) = local.query(f"SELECT max(run) AS number FROM runs WHERE id = '{run}'")["number"]
            asked = f"SELECT step FROM metrics WHERE bitShiftRight(series, 32) = {number} ORDER BY step"
            found.append(local.query(asked)["step"])
    return [list(map(int, each)) for each in found]


@pytest.mark.parametrize("table", ["metrics", "totals", "ledger", "series", "runs"])
def test_rows_of_one_replica_alone(
    cluster: ClusterProcesses, wire: Wire, store: Store, table: str, until: Callable[..., None]
) -> None:
    """The commit is taken back on that replica, too, and repeated: each replica has every row, once."""

    def offer(run: str, seq: int) -> bool:
        with suppress(EngineError):
            store.recover(0)
            (outcome,) = store.write_many([Batch(writer(run), seq, losses([(seq, 1.0)]))])
            assert outcome is None or isinstance(outcome, Retry), outcome
            return outcome is None
        return False

    before, run = f"before-{table}", f"run-{table}"
    until(lambda: offer(before, 0), 300)
    wire.lose = f"/{table}/".encode()
    assert not offer(run, 0)
    assert not wire.lose
    until(lambda: offer(run, 0) and offer(run, 1), 300)
    until(lambda: steps(cluster, run) == [[0, 1], [0, 1]], 300)
    assert steps(cluster, before) == [[0], [0]]
    (row,) = [each for each in list_runs(store.engine) if each.id == run]
    assert row.counts["points"] == 2
