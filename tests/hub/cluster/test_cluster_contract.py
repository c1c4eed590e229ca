"""A store on a real cluster, two shards of two replicas, keeps the contract of stores."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from stepscope.hub.store import maintenance
from stepscope.hub.store.cluster import waiting
from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.store import Store, open_server
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.hub.cluster.conftest import HUB, AddressOf
from tests.hub.cluster.tls import secure_url, tls_of
from tests.hub.store.contract import StoreContract, floats, line, losses, numbered, writer
from tests.hub.store.cut_contract import CutContract
from tests.repeats import LONG

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")


@pytest.fixture(scope="module")
def address_of(cluster: ClusterProcesses) -> AddressOf:
    """The databases of these tests are on the cluster."""
    return cluster.url


class TestClusterStore(StoreContract):
    def test_a_run_is_on_one_shard(
        self, store: Store, run: str, cluster: ClusterProcesses, database: str, until: Callable[..., None]
    ) -> None:
        """All its rows, whichever table they are in; runs are spread over the shards, and replicas hold the same."""
        store.write_many([Batch(writer(f"{run}{each}"), 0, losses([(1, 1.0), (2, 2.0)])) for each in range(4)])
        place = f"{parse(database).database}_shard"
        total = 0
        for shard, replicas in enumerate(cluster.servers):
            first, second = (Server(parse(replica.url(place))) for replica in replicas)
            for table, key in (("metrics", "bitShiftRight(series, 32)"), ("series", "run"), ("ledger", "run")):
                found = f"SELECT toUInt32({key}) AS run FROM {table} ORDER BY {key}"
                runs = first.query(found)["run"]
                assert {number % len(cluster.servers) for number in runs} == {shard}, table
                until(partial(_answers, second, found, runs))
                total += len(runs) if table == "metrics" else 0
            first.close()
            second.close()
        assert total == store.engine.query("SELECT count() AS n FROM metrics").one("n")

    def test_writing_and_deleting_run_nothing_on_all_servers(self, store: Store, run: str) -> None:
        """Statements for the whole cluster wait for its slowest server: they set tables up, and no more."""
        queue = "SELECT count() AS entries FROM system.zookeeper WHERE path = '/clickhouse/task_queue/ddl'"
        before = store.engine.query(queue).one("entries")
        store.write_many([Batch(writer(f"{run}{each}"), 0, losses([(1, 1.0)])) for each in range(4)])
        found = store.engine.query(f"SELECT run FROM runs WHERE startsWith(id, '{run}')")["run"]
        assert {number % 2 for number in found} == {0, 1}
        maintenance.drop_runs(store, found)
        assert store.engine.query(f"SELECT count() AS n FROM runs WHERE run IN {tuple(found)}").one("n") == 0
        assert before > 0
        assert store.engine.query(queue).one("entries") == before

    def test_over_tls(self, store: Store, run: str, cluster: ClusterProcesses, database: str) -> None:
        """Another hub connects to the same servers with TLS: it must know their certificate, writes and reads."""
        tls = tls_of(cluster)
        if tls is None:
            pytest.skip("openssl is not installed")
        url = secure_url(cluster, tls, parse(database).database)
        with pytest.raises(ConfigError, match="certificate verify failed"):
            open_server(url.partition("&ca=")[0])
        secure = open_server(url, member=this_process(HUB))
        names = [f"{run}{each}" for each in range(4)]
        secure.write_many([Batch(writer(name), 0, losses([(1, 1.0)])) for name in names])
        assert {numbered(secure, name) % 2 for name in names} == {0, 1}
        assert [floats(line(secure, name)) for name in names] == [[1.0]] * 4
        assert secure.engine.shard(1).query("SELECT count() AS n FROM metrics").one("n") > 0
        secure.close()

    def test_what_only_a_dead_server_has_is_waited_for(
        self, cluster: ClusterProcesses, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is taken back while a replica misses rows that another one acknowledged; then all is there, once."""
        (first, second), _ = cluster.servers
        name = parse(database).database
        other = Server(parse(second.url(f"{name}_shard")))
        store = open_server(database, member=this_process(HUB))
        store.write_many([Batch(writer(f"lag{each}"), 0, losses([(1, 1.0)])) for each in range(2)])
        other.execute("SYSTEM STOP FETCHES")
        store.write_many([Batch(writer(f"lag{each}"), 1, losses([(2, 2.0)])) for each in range(2)])
        store.close()
        first.kill()
        monkeypatch.setattr(waiting, "SETTLE_SECONDS", 0.1)
        with pytest.raises(ConfigError, match="have not caught up"):
            open_server(database, member=this_process(HUB))
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(open_server, database, member=this_process(HUB), patience=300)
            first.start()
            other.execute("SYSTEM START FETCHES")
            store = opening.result(300)
        other.close()
        store.write_many([Batch(writer(f"lag{each}"), 1, losses([(2, 2.0)])) for each in range(2)])
        assert [floats(line(store, f"lag{each}")) for each in range(2)] == [[1.0, 2.0]] * 2
        store.close()


def _answers(server: Server, sql: str, expected: list[int]) -> bool:
    return server.query(sql)["run"] == expected


@pytest.mark.skipif(not LONG, reason="STEPSCOPE_TEST_LONG is not set: takes minutes")
class TestCutClusterStore(CutContract):
    @pytest.fixture
    def reopen(self, cluster: ClusterProcesses, run: str) -> Iterator[Callable[[Store | None], Store]]:
        """Open a database again and again, and wait each time until what was left is deleted."""
        opened: list[Store] = []

        def again(before: Store | None) -> Store:
            if before is not None:
                before.close()
            opened.append(open_server(cluster.url(run), member=this_process(HUB), patience=300))
            return opened[-1]

        yield again
        opened[-1].close()
