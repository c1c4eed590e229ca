"""User-supplied queries on a real hub: bounded in rows, bytes, memory and time, and cancellable."""

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import JSON, Answer, RunningHub
from tests.hub.test_connections import head, rss, wait_for, watching_memory

MEGA = 1024 * 1024
MILLIONS = "(SELECT arrayJoin(range(10000000)) AS {0}) AS t_{0}"
SLOW = f"SELECT count() FROM {MILLIONS.format('a')}, {MILLIONS.format('b')} WHERE sipHash64(a, b) = 1"
LONG = "arrayMap(x -> leftPad(toString(x), 10000, 'a'), range(100000))"


def ask(hub: RunningHub, sql: str, rows: int = 10, seconds: float = 10.0) -> Answer:
    """Send a statement."""
    return hub.post("/api/sql", json.dumps({"sql": sql, "rows": rows, "seconds": seconds}).encode(), JSON)


def sending(hub: RunningHub, sql: str, seconds: float) -> socket.socket:
    """Send a statement and do not wait for its answer."""
    body = json.dumps({"sql": sql, "seconds": seconds}).encode()
    made = socket.create_connection(("127.0.0.1", hub.port), 60)
    made.sendall(head("POST", "/api/sql", f"content-type: {JSON}", f"content-length: {len(body)}") + body)
    return made


def test_rows_are_bounded_in_the_engine(hub: RunningHub) -> None:
    """A statement of ten million rows, of which one is wanted, brings that one and takes little memory."""
    ask(hub, "SELECT 1")
    before = rss(hub)
    found = ask(hub, "SELECT arrayJoin(range(10000000))", rows=1, seconds=30).json()
    assert (found["rows"], found["more"]) == ([[0]], True)
    assert rss(hub) - before < 300 * MEGA


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT arrayMap(x -> leftPad('', 1000000, 'a'), range(100))",
        "SELECT groupArray(x) FROM (SELECT arrayJoin(range(10000000)) AS x)",
        "SELECT arraySort(x -> -x, range(19000000))",
        "SELECT arrayMap(x -> range(1000000), range(1000000))",
        f"SELECT count() FROM (SELECT arrayJoin({LONG}) AS s ORDER BY reverse(s))",
        "SELECT arrayJoin(arrayMap(x -> leftPad('', 1000000, 'a'), range(1000)))",
        SLOW,
    ],
)
def test_costly_statements_end(hub: RunningHub, sql: str) -> None:
    """A costly statement ends with an error message, in bounded memory."""
    before = rss(hub)
    found = ask(hub, sql, seconds=2.0)
    assert found.status in (400, 503), found.body[:200]
    assert rss(hub) - before < 900 * MEGA


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT cast(unhex('ffffffffffffffff'), 'AggregateFunction(groupArray, UInt64)')",
        "SELECT cast('1', 'Aggregate\\x46unction(sum, UInt8)')",
        "SELECT cast('1', concat('Aggregate', 'Function(sum, UInt8)'))",
        "SELECT cast('1' AS Array(AggregateFunction(sum, UInt8)))",
        "SELECT cast('1', 'SimpleAggregateFunction(sum, UInt64)')",
        "SELECT cast('1', 'Nullable(Nested(a AggregateFunction(sum, UInt8)))')",
        "SELECT cast('{}', 'JSON')",
        "SELECT cast('1', 'Dynamic')",
        "SELECT '1'::Variant(UInt8, String)",
        "SELECT arrayReduce('sumState', [1])",
        "SELECT arrayReduce('sumMerge', [1])",
        "SELECT arrayReduce(concat('sum', 'State'), [1])",
        "SELECT arrayReduce('sumStateOrDefault', [1])",
    ],
)
def test_no_string_becomes_a_state(hub: RunningHub, sql: str) -> None:
    """The states of aggregate functions are not read from strings, and computed names of types are refused."""
    found = ask(hub, sql)
    assert found.status == 400
    assert "not allowed" in found.json()["error"]["message"] or "as a literal" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT cast('1', 'Array(UInt8)') AS a", None),
        ("SELECT cast('1', 'UInt8') AS a, '2.5'::Float64 AS b, cast(3 AS Nullable(String)) AS c", [1, 2.5, "3"]),
        ("SELECT arrayReduce('sum', [1, 2]) AS a, arrayReduce('quantile(0.5)', [1, 2]) AS b", [3, 1.5]),
        ("SELECT cast(1.5, 'Decimal(9, 2)') AS a", [1.5]),
        ("SELECT '\\xff\\xfe' AS a", ["\ufffd\ufffd"]),
        ("SELECT unhex('80') AS a, [unhex('ff')] AS b", ["\ufffd", ["\ufffd"]]),
        ("SELECT 1 AS a WHERE '\\x80' != '\\x81'", [1]),
        ("SELECT toUInt8(unhex('ff')) AS a", None),
        ("SELECT toDate(unhex('8081')) AS a", None),
        ("SELECT cast('a', '\\xff') AS a", None),
        ("SELECT nonsense AS '\\xff'", None),
    ],
)
def test_bytes_and_types(hub: RunningHub, sql: str, row: list[Any] | None) -> None:
    """Plain types can be cast to; bytes that are no UTF-8 are shown, or refused with 400."""
    found = ask(hub, sql)
    if row is None:
        assert found.status == 400
        assert found.json()["error"]["message"]
    else:
        assert found.json()["rows"] == [row]


LARGE_ROWS = {
    "lists": "SELECT arrayMap(x -> [1], range(a)) FROM (SELECT arrayJoin([8000000]) AS a)",
    "empty lists": "SELECT arrayMap(x -> range(0), range(a)) FROM (SELECT arrayJoin([9000000]) AS a)",
    "numbers": "SELECT range(a) FROM (SELECT arrayJoin([4000000]) AS a)",
    "wide text": "SELECT arrayMap(x -> concat('😀', leftPad('', 1000000, 'a')), range(29))",
    "a large block": "SELECT leftPad('', 50000, 'a') AS b FROM (SELECT arrayJoin(range(2048)) AS a)",
}


@pytest.mark.parametrize("sql", LARGE_ROWS.values(), ids=list(LARGE_ROWS))
def test_statements_share_their_memory(hub: RunningHub, sql: str) -> None:
    """Two statements at once take 512 MiB in the engine and little outside it, and leave nothing behind."""
    ask(hub, "SELECT 1")
    with watching_memory(hub) as growth, ThreadPoolExecutor(2) as pool:
        began, before = time.monotonic(), rss(hub)
        answers = list(pool.map(lambda _: ask(hub, sql, rows=10_000).status, range(2)))
        assert time.monotonic() - began < 30
    assert set(answers) <= {400}
    assert growth() < 700 * MEGA
    assert rss(hub) - before < 200 * MEGA


PADDED = "SELECT a, leftPad('', {1}, 'x') AS b{2} FROM (SELECT arrayJoin(range({0})) AS a ORDER BY a LIMIT {0})"
LATE = ", toUInt8(if(a = {0}, 'none', '1')) AS c"


def test_a_large_answer_is_streamed(hub: RunningHub) -> None:
    """100 MB of rows arrive whole, and never lie in the hub's memory as a whole."""
    ask(hub, "SELECT 1")
    before = rss(hub)
    found = ask(hub, PADDED.format(10_000, 10_000, ""), rows=10_000, seconds=30).json()
    assert (len(found["rows"]), found["more"], "error" in found) == (10_000, False, False)
    assert found["rows"][-1] == [9999, "x" * 10_000]
    assert rss(hub) - before < 500 * MEGA


def test_a_failure_after_the_first_rows_is_reported(hub: RunningHub) -> None:
    """A failure after rows were sent ends the answer with an error, and it is still valid JSON."""
    answer = ask(hub, PADDED.format(10_000, 1000, LATE.format(9999)), rows=10_000)
    found = answer.json()
    assert (answer.status, found["more"]) == (200, True)
    assert 0 < len(found["rows"]) < 10_000
    assert "Cannot parse" in found["error"]["message"]
    early = ask(hub, PADDED.format(10, 10, LATE.format(9)))
    assert (early.status, "Cannot parse" in early.json()["error"]["message"]) == (400, True)


def test_a_client_that_leaves_amid_the_rows_ends_its_statement(hub: RunningHub) -> None:
    """Two who read the beginning of a large answer and leave make room for the next long before their time."""
    large = json.dumps({"sql": PADDED.format(10_000, 12_000, ""), "rows": 10_000, "seconds": 30}).encode()
    for _ in range(2):
        made = socket.create_connection(("127.0.0.1", hub.port), 60)
        made.sendall(head("POST", "/api/sql", f"content-type: {JSON}", f"content-length: {len(large)}") + large)
        assert b"200 OK" in made.recv(1024)
        made.close()
    began = time.monotonic()
    assert ask(hub, "SELECT 1").json()["rows"] == [[1]]
    assert time.monotonic() - began < 25


def test_slow_statements_delay_no_other_request(hub: RunningHub) -> None:
    """Twelve statements that take all their time do not block the list of runs; the rest get Retry-After."""
    open_ones = [sending(hub, SLOW, 20.0) for _ in range(12)]
    try:
        for _ in range(10):
            assert hub.request("GET", "/api/runs").status == 200
            assert hub.post("/v1/logs", b"{}", JSON).status == 200
        assert ask(hub, "SELECT 1").status == 503
    finally:
        for connection in open_ones:
            connection.close()
    wait_for(lambda: ask(hub, "SELECT 1").status == 200)


def test_a_client_that_leaves_ends_its_statement(hub: RunningHub) -> None:
    """When the clients of all statements under way leave, the next statement is answered long before their time."""
    before = _spent(hub)
    open_ones = [sending(hub, SLOW, 30.0) for _ in range(2)]
    wait_for(lambda: _spent(hub) - before > 1.0)
    began = time.monotonic()
    for connection in open_ones:
        connection.close()
    assert ask(hub, "SELECT 1").json()["rows"] == [[1]]
    assert time.monotonic() - began < 25


def _spent(hub: RunningHub) -> float:
    """Seconds of CPU that the hub has taken."""
    assert hub.process is not None
    fields = Path(f"/proc/{hub.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_hub_stops_in_the_midst_of_statements(start_hub: Callable[..., RunningHub]) -> None:
    """SIGTERM ends statements that have half a minute left."""
    hub = start_hub()
    before = _spent(hub)
    open_ones = [sending(hub, SLOW, 30.0) for _ in range(4)]
    wait_for(lambda: _spent(hub) - before > 1.0)
    try:
        assert hub.stop(300) == 0
    finally:
        for connection in open_ones:
            connection.close()
