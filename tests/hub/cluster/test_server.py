"""The engine over a real server: failover, limits, cancelled queries, TLS, and errors without the password."""

import math
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.hub.store import columns
from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.pool import Pool
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.engine import CANCELLED, EngineError, Limits, Stop
from stepscope.hub.store.store import open_server
from stepscope.model.errors import ConfigError
from stepscope.testing.clickhouse import PROGRAM, ServerProcess, free_port, program, running
from tests.hub.cluster.conftest import PASSWORD
from tests.hub.cluster.tls import make_tls, with_tls

needs_program = pytest.mark.skipif(program() is None, reason=f"{PROGRAM} is not installed")


@pytest.fixture(scope="class")
def engine(database: str) -> Iterator[Server]:
    """An engine with a database of its own."""
    opened = Server(parse(database))
    yield opened
    opened.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that a test may kill."""
    if program() is None:
        pytest.skip(f"{PROGRAM} is not installed")
    with running(ServerProcess(tmp_path / "own", free_port(), PASSWORD)) as server:
        yield server


class TestColumns:
    def test_a_closed_connection_is_an_error_that_passes(self, database: str) -> None:
        """As one that breaks: the next one is used then, whatever was to be sent."""
        session = Pool(parse(database)).connect(database="")
        session.close()
        for send in (session.execute, session.query):
            with pytest.raises(EngineError, match="the connection is closed") as raised:
                send("SELECT 1")
            assert raised.value.passing

    def test_columns_survive_the_way_there_and_back(self, engine: Server) -> None:
        """Every type of column, bit by bit, over several blocks of an answer."""
        rows = 100_000
        values = [math.nan, -0.0, math.inf, 0.1] * (rows // 4)
        engine.execute(
            "CREATE TABLE kinds (n Int64, v Float64, s String, x FixedString(4), a Array(String), b Array(UInt64)) "
            "ENGINE = MergeTree ORDER BY n"
        )
        ends = columns.ends_of([2] * rows)
        engine.insert(
            "kinds",
            {
                "n": columns.numbers("Int64", range(rows)),
                "v": columns.numbers("Float64", values),
                "s": columns.texts(["ünï\0'"] * rows),
                "x": columns.fixed(4, [b"\0\xff\0\0"] * rows),
                "a": columns.Lists(ends, columns.texts(["", "b"] * rows)),
                "b": columns.Lists(ends, columns.numbers("UInt64", range(2 * rows))),
            },
        )
        found = engine.query("SELECT * FROM kinds ORDER BY n")
        assert found.array("n").tolist() == list(range(rows))
        assert found.array("v").tobytes() == struct.pack(f"<{rows}d", *values)
        assert set(found["s"]) == {"ünï\0'"}
        assert set(found["x"]) == {b"\0\xff\0\0"}
        assert found["a"] == [["", "b"]] * rows
        assert found["b"][-1] == [2 * rows - 2, 2 * rows - 1]

    def test_an_answer_without_rows_knows_its_columns(self, engine: Server) -> None:
        """And can be asked for them."""
        found = engine.query("SELECT toInt64(1) AS n, 'x' AS s WHERE 0")
        assert (len(found), found["n"], found["s"]) == (0, [], [])


class TestQueries:
    def test_a_query_cannot_write(self, engine: Server) -> None:
        """Nor change a setting, nor create anything."""
        for sql in ("CREATE TABLE mine (n UInt8) ENGINE = Memory", "SET readonly = 0"):
            with pytest.raises(EngineError), engine.ask(sql, Limits()) as found:
                list(found.blocks)

    def test_rows_are_cut_and_values_are_readable(self, engine: Server) -> None:
        """At most so many rows; ids in hexadecimal, times and what is not finite as text."""
        sql = (
            "SELECT number AS n, toFixedString('ab', 2) AS id, unhex('ff') AS bad, toDateTime(0, 'UTC') AS at, "
            "[1, 2] AS list, 1 / 0 AS endless, NULL AS nothing FROM system.numbers"
        )
        with engine.ask(sql, Limits(rows=2)) as found:
            rows = [row for block in found.blocks for row in block]
        row = ["6162", "\N{REPLACEMENT CHARACTER}", "1970-01-01 00:00:00", [1, 2], "inf", None]
        assert (rows, found.more) == ([[0, *row], [1, *row]], True)
        assert found.names == ["n", "id", "bad", "at", "list", "endless", "nothing"]
        assert found.types[:2] == ["UInt64", "FixedString(2)"]

    def test_a_row_that_is_too_long_is_refused(self, engine: Server) -> None:
        """Before it is handed on."""
        with (
            pytest.raises(EngineError, match="a row of the answer is larger"),
            engine.ask("SELECT arrayStringConcat(arrayMap(x -> 'xxxxxxxxxx', range(1000)))", Limits(row=100)) as found,
        ):
            list(found.blocks)

    def test_a_query_ends_in_time(self, engine: Server) -> None:
        """The server itself stops it, and says why."""
        with (
            pytest.raises(EngineError, match=r"[Tt]imeout exceeded") as refused,
            engine.ask("SELECT count() FROM system.numbers", Limits(seconds=0.5)) as found,
        ):
            list(found.blocks)
        assert refused.value.code == 159

    def test_a_query_can_be_cancelled(self, engine: Server) -> None:
        """From another thread; the server stops working on it."""
        stop = Stop()
        threading.Timer(0.2, stop.set).start()
        with (
            pytest.raises(EngineError) as refused,
            engine.ask("SELECT count() FROM system.numbers WHERE number < 0", Limits(seconds=60), stop) as found,
        ):
            list(found.blocks)
        assert refused.value.code == CANCELLED
        left = "SELECT count() AS n FROM system.processes WHERE query LIKE '%number < 0%' AND query NOT LIKE '%LIKE%'"
        for _ in range(200):
            if not engine.query(left).one("n"):
                return
            threading.Event().wait(0.05)
        pytest.fail("the query is still running")

    def test_a_refusal_is_short(self, engine: Server) -> None:
        """What the server said, without a stack trace, and its code."""
        with pytest.raises(EngineError) as refused:
            engine.query("SELECT nonsense")
        assert refused.value.code == 47
        assert "nonsense" in str(refused.value)
        assert "Stack trace" not in str(refused.value)
        assert engine.query("SELECT 1 AS n").one("n") == 1


@needs_program
class TestHosts:
    def test_a_host_that_fails_is_left_for_the_next(self, own_server: ServerProcess, tmp_path: Path) -> None:
        """Reads go on when a server dies; a dead host at the start is passed over; without any it says so."""
        with running(ServerProcess(tmp_path / "other", free_port(), PASSWORD)) as other:
            hosts = f"127.0.0.1:{free_port()},127.0.0.1:{own_server.port},127.0.0.1:{other.port}"
            engine = Server(parse(f"clickhouse://default:{PASSWORD}@{hosts}/default?connect_timeout=2"))
            assert engine.query("SELECT tcpPort() AS port" if engine.modern else "SELECT 1 AS port").one("port")
            own_server.kill()
            assert [answer.one("n") for answer in engine.query_many(["SELECT 1 AS n"] * 4)] == [1] * 4
        with pytest.raises(EngineError, match="no server of the store answers") as refused:
            engine.query("SELECT 1 AS n")
        assert refused.value.passing
        assert PASSWORD not in str(refused.value)
        own_server.start()
        assert engine.query("SELECT 1 AS n").one("n") == 1
        engine.close()

    def test_a_server_that_hangs_is_left_for_the_next(self, own_server: ServerProcess, tmp_path: Path) -> None:
        """It keeps its connections and says nothing: reads wait for a while, not as long as a statement may take."""
        with running(ServerProcess(tmp_path / "other", free_port(), PASSWORD)) as other:
            hosts = f"127.0.0.1:{own_server.port},127.0.0.1:{other.port}"
            address = parse(f"clickhouse://default:{PASSWORD}@{hosts}/default?connect_timeout=20")
            engine = Server(replace(address, silence=1.0))
            assert engine.query("SELECT 1 AS n").one("n") == 1
            assert own_server.process is not None
            own_server.process.send_signal(signal.SIGSTOP)
            assert engine.query("SELECT 2 AS n").one("n") == 2
            own_server.process.send_signal(signal.SIGCONT)
            engine.close()

    def test_a_server_that_restarts_is_found_again(self, own_server: ServerProcess) -> None:
        """Statements after it, writes too, do not fail for connections that were open before."""
        engine = Server(parse(own_server.url("default")))
        engine.execute("CREATE TABLE kept (n UInt64) ENGINE = MergeTree ORDER BY n")
        engine.query_many(["SELECT 1 AS n"] * 4)
        own_server.kill()
        own_server.start()
        engine.insert("kept", {"n": columns.numbers("UInt64", [7])})
        assert engine.query("SELECT n FROM kept")["n"] == [7]
        engine.close()

    def test_a_server_that_says_nothing_is_given_up(self) -> None:
        """A port that takes connections and never answers costs no more than the time to connect."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with pytest.raises(ConfigError, match="cannot be opened") as refused:
                open_server(f"clickhouse://default:{PASSWORD}@127.0.0.1:{port}/x?connect_timeout=0.3")
        assert PASSWORD not in str(refused.value)

    def test_a_wrong_password_is_said_and_not_shown(self, own_server: ServerProcess) -> None:
        """Neither the wrong one nor the right one."""
        with pytest.raises(ConfigError) as refused:
            open_server(own_server.url("x").replace(PASSWORD, "wrong-one"))
        assert "default" in str(refused.value)
        assert "wrong-one" not in str(refused.value)
        assert PASSWORD not in str(refused.value)

    def test_tls(self, tmp_path: Path) -> None:
        """A certificate that is not known is refused; with it, everything is encrypted."""
        tls = make_tls(tmp_path)
        if tls is None:
            pytest.skip("openssl is not installed")
        with running(with_tls(ServerProcess(tmp_path / "tls", free_port(), PASSWORD), tls)) as secure:
            url = f"clickhouses://default:{PASSWORD}@127.0.0.1:{secure.more_ports[0]}/default"
            with pytest.raises(EngineError, match="certificate verify failed"):
                Server(parse(url))
            engine = Server(parse(f"{url}?ca={tls.certificate}"))
            assert engine.query("SELECT 1 AS n").one("n") == 1
            engine.close()


@needs_program
def test_a_server_that_crashes_at_its_start_is_started_again(tmp_path: Path) -> None:
    """Old servers abort now and then when they start; a supervisor would start them again, and so do tests."""
    server = ServerProcess(tmp_path / "server", free_port())
    server.launch()
    crashed = server.process
    assert crashed is not None
    crashed.kill()
    try:
        server.wait()
        assert server.process is not crashed
    finally:
        server.kill()
