"""A store on a real cluster, two shards of two replicas, keeps the contract of stores."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.store import Store, open_server
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from stepscope.testing.cuts import CutContract
from stepscope.testing.stores import StoreContract, floats, line, losses, writer
from tests.hub.cluster.conftest import HUB, AddressOf
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

    def test_what_only_a_dead_server_has_is_waited_for(self, cluster: ClusterProcesses, database: str) -> None:
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
        with pytest.raises(ConfigError, match="have not caught up"):
            open_server(database, member=this_process(HUB))
        first.start()
        other.execute("SYSTEM START FETCHES")
        other.close()
        store = _open_when_caught_up(database)
        store.write_many([Batch(writer(f"lag{each}"), 1, losses([(2, 2.0)])) for each in range(2)])
        assert [floats(line(store, f"lag{each}")) for each in range(2)] == [[1.0, 2.0]] * 2
        store.close()


def _open_when_caught_up(database: str) -> Store:
    """Open a store again and again, while its replicas fetch what they miss."""
    deadline = time.monotonic() + 300
    while True:
        try:
            return open_server(database, member=this_process(HUB))
        except ConfigError as error:
            if "have not caught up" not in str(error) or time.monotonic() > deadline:
                raise


def _answers(server: Server, sql: str, expected: list[int]) -> bool:
    return server.query(sql)["run"] == expected


@pytest.mark.skipif(not LONG, reason="STEPSCOPE_TEST_LONG is not set: takes minutes")
class TestCutClusterStore(CutContract):
    pass
