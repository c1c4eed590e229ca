"""ZooKeeper is lost in the moment in which a half-written commit is taken back: one shard waits, no more."""

from collections.abc import Callable, Iterator

import pytest

from stepscope.hub.fleet.fleet import ShardUpkeep
from stepscope.hub.store.cluster.placement import run_hash
from stepscope.hub.store.cluster.shard_tables import ShardTables
from stepscope.hub.store.columns import Block
from stepscope.hub.store.engine import EngineError
from stepscope.hub.store.schema import ShardUnavailable
from stepscope.hub.store.store import Store
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.hub.cluster.test_stale_replica import joined
from tests.hub.store.contract import floats, line, losses, writer

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
HERE, THERE = (next(run for run in map(str, range(100)) if run_hash(run) % 2 == shard) for shard in (0, 1))


@pytest.fixture
def store(cluster: ClusterProcesses) -> Iterator[Store]:
    """A store of which the first shard has a commit without an entry in the ledger; others recover it."""
    opened = joined(cluster.url("lost"))
    opened.recover_apart()
    for run in (HERE, THERE):
        opened.write(Batch(writer(run), 0, losses([(0, 1.0)])))
    tables = opened.engine.shard(0)
    assert isinstance(tables, ShardTables)
    insert = tables.insert

    def cut(table: str, block: Block) -> None:
        if table == "ledger":
            raise EngineError("the connection broke", 210)
        insert(table, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "insert", cut)
        with pytest.raises(ShardUnavailable, match="cannot accept more now"):
            opened.write(Batch(writer(HERE), 1, losses([(1, 2.0)])))
    yield opened
    opened.close()


def offer(store: Store, run: str, seq: int) -> bool:
    """Offer a batch; whether it was stored."""
    (outcome,) = store.write_many([Batch(writer(run), seq, losses([(seq, float(seq + 1))]))])
    assert outcome is None or isinstance(outcome, ShardUnavailable), outcome
    return outcome is None


def test_a_recovery_without_zookeeper(
    cluster: ClusterProcesses, store: Store, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    """The other shard is written meanwhile, nothing waits for the recovery, and it is completed when it can be."""
    assert not offer(store, HERE, 1)
    assert offer(store, THERE, 1)
    tables = store.engine.shard(0)
    execute = tables.execute
    monkeypatch.setattr(tables, "execute", lambda sql: (cluster.zookeeper.kill(), execute(sql)))
    with pytest.raises(EngineError) as raised:
        store.recover(0)
    assert raised.value.passing
    monkeypatch.undo()
    assert not offer(store, HERE, 1)
    cluster.zookeeper.start()
    upkeep = ShardUpkeep(store, 0.5, lambda: None)
    upkeep.start()
    until(lambda: offer(store, HERE, 1) and offer(store, THERE, 2), 300)
    upkeep.stop()
    assert [floats(line(store, run)) for run in (HERE, THERE)] == [[1.0, 2.0], [1.0, 2.0, 3.0]]
