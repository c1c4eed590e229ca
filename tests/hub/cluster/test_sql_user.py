"""User-supplied queries run as a database user that can only read our tables; the server refuses the rest itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub.questions.sql.sql_check import Forbidden, run_select
from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.engine import EngineError, Limits
from stepscope.hub.store.store import Store, open_server
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Batch
from stepscope.testing.clickhouse import PROGRAM, ServerProcess, free_port, program, running
from tests.hub.cluster.conftest import PASSWORD
from tests.hub.store.contract import losses, writer

READER = Path(__file__).parents[3] / "deploy" / "clickhouse" / "reader.xml"
READER_PASSWORD = "r3ader"
WRITES = (
    "INSERT INTO runs (id) VALUES ('x')",
    "CREATE TABLE mine (n UInt8) ENGINE = Memory",
    "DROP TABLE runs",
    "ALTER TABLE runs DELETE WHERE 1",
    "SET readonly = 0",
    "SELECT * FROM other.secrets",
    "SYSTEM RELOAD CONFIG",
)
"""What the server itself must refuse."""
READS = (
    "KILL QUERY WHERE 1",
    "SELECT * FROM file('/etc/passwd', 'CSV', 'a String')",
    "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
    "SELECT * FROM remote('127.0.0.1', 'system', 'one')",
    "SELECT * FROM system.processes",
    "SELECT id FROM runs SETTINGS max_threads = 64",
    "SELECT id FROM runs INTO OUTFILE 'x'",
    "SELECT id FROM runs; SELECT 1",
)
"""What only the gate has to refuse."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the user of `deploy/`, and a database that is not ours."""
    if program() is None:
        pytest.skip(f"{PROGRAM} is not installed")
    users = READER.read_text().replace("change-me", READER_PASSWORD)
    with running(ServerProcess(tmp_path_factory.mktemp("reader"), free_port(), PASSWORD, users=users)) as started:
        other = Server(parse(started.url("other")))
        other.execute("CREATE TABLE secrets (n UInt8) ENGINE = Memory")
        other.close()
        yield started


@pytest.fixture(scope="module")
def store(server: ServerProcess) -> Iterator[Store]:
    """A store whose queries are run by that user."""
    opened = open_server(f"{server.url()}?sql_user=stepscope_reader&sql_password={READER_PASSWORD}")
    opened.write_many([Batch(writer(f"r{index}"), 0, losses([(1, 1.0)])) for index in range(3)])
    yield opened
    opened.close()


def _rows(store: Store, sql: str, limits: Limits | None = None) -> list[list[object]]:
    with store.engine.ask(sql, limits or Limits()) as found:
        return [row for block in found.blocks for row in block]


def test_queries_of_our_tables_are_answered(store: Store) -> None:
    """With subqueries, and within the limits of the hub."""
    assert _rows(store, "SELECT count() FROM runs") == [[3]]
    sql = "SELECT count() FROM series WHERE run IN (SELECT run FROM runs)"
    assert _rows(store, sql) == [[3]]
    assert len(_rows(store, "SELECT id FROM runs", Limits(rows=2))) == 2
    with pytest.raises(EngineError, match=r"[Mm]emory limit"):
        _rows(store, "SELECT groupArray(number) FROM numbers(100000000)", Limits(memory=1_000_000))


@pytest.mark.parametrize("sql", WRITES)
def test_the_server_refuses(store: Store, sql: str) -> None:
    """To write, to change its own rights, and to read another database; so does the gate."""
    with pytest.raises(EngineError) as refused:
        _rows(store, sql)
    assert not refused.value.passing
    with pytest.raises(Forbidden), run_select(store.engine, sql, Limits()):
        pass


@pytest.mark.parametrize("sql", READS)
def test_the_gate_refuses(store: Store, sql: str) -> None:
    """Files, addresses, other servers, the server's own tables and settings, on a server without EXPLAIN AST too."""
    with pytest.raises(Forbidden), run_select(store.engine, sql, Limits()):
        pass


def test_a_user_that_could_write_is_not_taken(server: ServerProcess) -> None:
    """The hub says what is wrong, and shows no password."""
    with pytest.raises(ConfigError, match="must have readonly = 2") as refused:
        open_server(f"{server.url()}?sql_user=default&sql_password={PASSWORD}")
    assert PASSWORD not in str(refused.value)
    assert READER_PASSWORD not in repr(parse(f"{server.url()}?sql_user=a&sql_password={READER_PASSWORD}"))
