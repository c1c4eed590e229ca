"""A hub whose store is a real server: what it acknowledged is stored once, whatever dies, and a zombie is fenced."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stepscope.hub.store import maintenance
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.columns import Block
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.store import Store, open_server
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse import PROGRAM, ServerProcess, free_port, program, running
from tests.forked import stepscope
from tests.hub import otlp_bodies as bodies
from tests.hub.cluster.conftest import PASSWORD
from tests.hub.conftest import JSON, StartHub
from tests.hub.store.contract import floats, line, losses, writer

Until = Callable[..., None]
RECEIVER = "otlp_http"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that a test may kill."""
    if program() is None:
        pytest.skip(f"{PROGRAM} is not installed")
    with running(ServerProcess(tmp_path / "own", free_port(), PASSWORD)) as server:
        yield server


def test_nothing_is_lost_and_nothing_doubled(start_hub: StartHub, own_server: ServerProcess, until: Until) -> None:
    """The server is killed under the hub, then the hub: what was acknowledged is there once.

    Nobody is shown the password.
    """
    env = {"STEPSCOPE_STORE": own_server.url()}
    hub = start_hub(env=env)
    assert hub.post("/v1/metrics", bodies.points(10)).status == 200
    hub.wait_stored(RECEIVER, 10)
    own_server.kill()
    assert hub.post("/v1/metrics", bodies.points(10, first=10)).status == 200
    until(lambda: "no server of the store answers" in hub.health()["trouble"])
    assert PASSWORD not in hub.request("GET", "/api/health").body.decode()
    own_server.start()
    hub.wait_stored(RECEIVER, 20, 60)
    assert hub.post("/v1/metrics", bodies.points(10, first=20)).status == 200
    hub.kill()
    hub.start()
    until(lambda: hub.request("GET", "/api/runs/r").json()["counts"]["points"] == 30)
    (series,) = hub.request("GET", "/api/runs/r/series?key=loss").json()["series"]
    assert (series["total"], hub.health()["store"]["bytes"] > 0) == (30, True)


def test_sql_while_the_server_is_away_may_be_repeated(
    start_hub: StartHub, own_server: ServerProcess, until: Until
) -> None:
    """It is the server that fails, not the statement: 503 with a time; a wrong statement is 400 all the same."""
    hub = start_hub(env={"STEPSCOPE_STORE": own_server.url()})
    statement = b'{"sql": "SELECT count() FROM runs"}'
    assert hub.post("/api/sql", statement, JSON).status == 200
    own_server.kill()
    away = hub.post("/api/sql", statement, JSON)
    assert (away.status, away.json()["error"]["code"]) == (503, "service_unavailable")
    assert "retry-after" in away.headers
    own_server.start()
    until(lambda: hub.post("/api/sql", statement, JSON).status == 200)
    assert hub.post("/api/sql", b'{"sql": "SELECT nothing FROM runs"}', JSON).status == 400


def test_commands_use_the_same_store(own_server: ServerProcess, tmp_path: Path) -> None:
    """`stepscope store info` with the variable tells of the server."""
    store = open_server(own_server.url())
    store.write(Batch(writer("r"), 0, losses([(1, 1.0)])))
    store.close()
    found = stepscope("store", "info", "--json", "--home", tmp_path / "home", STEPSCOPE_STORE=own_server.url())
    assert '"points": 1' in found.stdout or '"points":1' in found.stdout, found.stderr


class LateLedger:
    """An engine whose entry in the ledger arrives after another process took the store over."""

    def __init__(self, engine: Engine, take_over: Callable[[], Store]) -> None:
        self._engine = engine
        self._take_over = take_over
        self.opened: list[Store] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def insert(self, table: str, block: Block) -> None:
        """Insert; everything of the commit arrives late."""
        if not self.opened:
            self.opened.append(self._take_over())
        self._engine.insert(table, block)


class TestLease:
    def test_a_hub_that_lost_the_store_writes_nothing_more(self, database: str) -> None:
        """A zombie: its place was taken while it hung; the other's rows stay, its own wait."""
        zombie = open_server(database, member=this_process("a" * 16))
        zombie.write(Batch(writer("r"), 0, losses([(1, 1.0)])))
        later = open_server(database, member=this_process("a" * 16))
        later.write(Batch(writer("r"), 1, losses([(2, 2.0)])))
        with pytest.raises(Retry, match="has taken over shard"):
            zombie.write(Batch(writer("r"), 2, losses([(3, 3.0)])))
        with pytest.raises(EngineError, match="another hub"):
            zombie.change(lambda: None, [0])
        zombie.close()
        later.write(Batch(writer("r"), 2, losses([(3, 3.0)])))
        assert sorted(later.engine.query("SELECT step FROM metrics")["step"]) == [1, 2, 3]
        later.close()

    def test_a_commit_that_ends_after_the_store_was_taken_over_does_not_count(self, database: str) -> None:
        """Its rows and its ledger entry arrive late; the batch is stored again by the new writer, and is there once."""
        zombie = open_server(database, member=this_process("f" * 16))
        late = LateLedger(zombie.engine, lambda: open_server(database, member=this_process("f" * 16)))
        zombie._committers[0]._engine = late  # type: ignore[assignment]
        batch = Batch(writer("late"), 0, losses([(1, 1.0), (2, 2.0)]))
        with pytest.raises(Retry, match="has taken over shard"):
            zombie.write(batch)
        (later,) = late.opened
        assert later.write_many([batch]) == [None]
        later._committers[0]._recovery.sweep(lambda: None)
        found = list_runs(later.engine, ids=["late"])[0]
        assert (found.counts["points"], floats(line(later, "late"))) == (2, [1.0, 2.0])
        assert maintenance.check(later.engine) == []
        zombie.close()
        later.close()

    def test_a_recovery_that_fails_is_continued(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """However often it is tried, one commit is noted as aborted, and its batch is stored once."""
        store = open_server(database, member=this_process("8" * 16))
        aborted = partial(store.engine.query, "SELECT count() AS held FROM aborted")
        before = aborted().one("held")
        insert, execute = store.engine.insert, store.engine.execute

        def cut(table: str, block: Block) -> None:
            if table == "ledger":
                raise EngineError("the connection broke", 210)
            insert(table, block)

        def stuck(sql: str) -> None:
            if " DELETE " in sql:
                raise EngineError("the rows are still being deleted", 341)
            execute(sql)

        monkeypatch.setattr(store.engine, "insert", cut)
        batch = Batch(writer("again"), 0, losses([(1, 1.0)]))
        with pytest.raises(Retry, match="the connection broke"):
            store.write(batch)
        monkeypatch.setattr(store.engine, "insert", insert)
        monkeypatch.setattr(store.engine, "execute", stuck)
        for _ in range(3):
            with pytest.raises(Retry, match="still being deleted"):
                store.write(batch)
        monkeypatch.undo()
        store.write(batch)
        assert (aborted().one("held"), floats(line(store, "again"))) == (before + 1, [1.0])
        assert maintenance.check(store.engine) == []
        store.close()

    def test_another_hub_waits_for_the_end_of_the_lease(self, database: str) -> None:
        """It is refused until the first has left."""
        first = open_server(database, member=this_process("b" * 16))
        with pytest.raises(ConfigError, match="another hub"):
            open_server(database, member=this_process("c" * 16))
        first.close()
        open_server(database, member=this_process("c" * 16)).close()
