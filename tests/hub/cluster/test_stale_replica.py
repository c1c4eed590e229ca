"""A replica that lacks rows and takes itself for current decides nothing: every replica that answers is asked."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.ownership import Ownership, this_process
from stepscope.hub.store.cluster.placement import run_hash
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.engine import Engine, EngineError, Limits, partial_answers
from stepscope.hub.store.store import Store
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.hub.store.contract import losses, writer

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
RUN = next(run for run in map(str, range(100)) if run_hash(run) % 2 == 0)
LEASE = 600


def joined(url: str) -> Store:
    """A store that a new hub shares with others."""
    engine = Server(parse(url))
    ownership = Ownership(engine, this_process(), LEASE)
    ownership.join()
    return Store(engine, ownership=ownership)


def cut_off(cluster: ClusterProcesses, url: str, tables: tuple[str, ...]) -> None:
    """Make tables of the second replica of the first shard their own: they get no row, and nothing says so."""
    place = parse(url)
    server = cluster.servers[0][1]
    local = Server(parse(f"clickhouse://default:{cluster.password}@{server.host}:{server.port}/{place.database}_shard"))
    for table in tables:
        named = f"database = currentDatabase() AND name = '{table}'"
        made = local.query(f"SELECT create_table_query AS made FROM system.tables WHERE {named}").one("made")
        local.execute(f"DROP TABLE {table}")
        local.execute(re.sub(r"Replicated(\w+)\('[^']*', '[^']*'(?:, )?", r"\1(", made))
    local.close()


@pytest.fixture(scope="module")
def stores(cluster: ClusterProcesses) -> Iterator[list[Store]]:
    """Two hubs; the first wrote a batch, the second uses a replica that knows neither that nor who wrote it."""
    url = cluster.url("stale")
    one = joined(url)
    one.write(Batch(writer(RUN), 0, losses([(0, 1.0)])))
    cut_off(cluster, url, ("leases", "ledger"))
    hosts = url.partition("@")[2].partition("/")[0]
    first, second, *others = hosts.split(",")
    stores = [one, joined(url.replace(hosts, ",".join((second, first, *others))))]
    yield stores
    for store in stores:
        store.close()


def test_the_shard_is_not_taken_twice(stores: list[Store]) -> None:
    """The second hub knows who has the shard, and the first one keeps it."""
    one, two = (store.ownership for store in stores)
    assert one is not None
    assert two is not None
    (stale,) = stores[1].engine.shard(0).query("SELECT count() AS held FROM leases")["held"]
    assert stale == 0
    assert (two.held(), two.writer(0)) == ([], next(each for each in two.living() if each.hub == one.member.hub))
    one.leases[0].check()


def test_what_is_stored_is_neither_deleted_nor_stored_again(stores: list[Store]) -> None:
    """The second hub takes the shard over and finds the batch in the ledger, also when it is offered again."""
    one, two = stores
    assert one.ownership is not None
    one.ownership.leave()
    two.beat()
    assert 0 in two.held()
    assert points(two) == 1
    two.write(Batch(writer(RUN), 0, losses([(0, 1.0)])))
    assert points(two) == 1


def points(store: Store) -> int:
    """How many points the first shard has."""
    return int(store.engine.shard(0).query("SELECT count() AS held FROM metrics").one("held"))


def test_an_answer_of_a_replica_that_is_behind_says_so(cluster: ClusterProcesses, until: Callable[..., None]) -> None:
    """While the replica that has everything is away, an answer of the other one is partial, or refused."""
    with ExitStack() as undo:
        store = joined(cluster.url("behind"))
        undo.callback(store.close)
        one, two = cluster.servers[0]
        behind = undo.enter_context(closing(Server(parse(two.url("behind_shard")))))
        behind.execute("SYSTEM STOP FETCHES behind_shard.runs")
        undo.callback(behind.execute, "SYSTEM START FETCHES behind_shard.runs")
        store.write(Batch(writer(RUN), 0, losses([(0, 1.0)])))
        delay = "SELECT max(absolute_delay) AS delay FROM system.replicas WHERE database = currentDatabase()"
        until(lambda: behind.query(delay).one("delay") > 1, 300)
        assert read(store) == ([RUN], [])
        one.kill()
        undo.callback(one.start)
        until(lambda: read(store) == ([], [1]), 300)
        with pytest.raises(EngineError) as raised:
            store.engine.query("SELECT id FROM runs")
        assert raised.value.passing
        with partial_answers() as missing, store.engine.ask("SELECT id FROM runs", Limits()) as answer:
            assert (list(answer.blocks), missing.numbers) == ([], [1])
    store = joined(cluster.url("behind"))
    until(lambda: read(store) == ([RUN], []), 300)
    store.close()


def test_a_replica_that_does_not_know_what_it_lacks_is_found_out(
    cluster: ClusterProcesses, until: Callable[..., None]
) -> None:
    """An answer without a commit that this hub wrote, or once read, is partial, or refused where it may not be."""
    url = cluster.url("silent")
    with ExitStack() as undo:
        one = joined(url)
        undo.callback(one.close)
        two = undo.enter_context(closing(Server(parse(url))))
        one.write(Batch(writer(RUN), 0, losses([(0, 1.0)])))
        until(lambda: two.query("SELECT id FROM runs")["id"] == [RUN], 300)
        two.cluster_state()
        cut_off(cluster, url, ("ledger", "runs"))
        server, _ = cluster.servers[0]
        server.kill()
        undo.callback(server.start)
        for engine in (one.engine, two):
            until(lambda engine=engine: answer(engine) == ([], [1]), 300)
            with pytest.raises(EngineError) as raised:
                engine.query("SELECT id FROM runs")
            assert raised.value.passing
            with partial_answers() as missing, engine.ask("SELECT id FROM runs", Limits()) as asked:
                assert (list(asked.blocks), missing.numbers) == ([], [1])


def read(store: Store) -> tuple[list[str], list[int]]:
    """The runs of the first shard that are read, and the shards that the answer lacks."""
    return answer(store.engine)


def answer(engine: Engine) -> tuple[list[str], list[int]]:
    """The same of an engine."""
    with partial_answers() as missing:
        found = engine.query("SELECT id FROM runs")["id"]
    return list(found), missing.numbers
