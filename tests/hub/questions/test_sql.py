"""SQL over HTTP: questions pass, everything else is refused in a sentence."""

import gzip
from collections.abc import Callable
from typing import Any

import pytest


def test_a_question(ask: Callable[..., Any]) -> None:
    """Columns with their types, rows, and whether there are more."""
    sql = "SELECT value, count() AS n FROM metrics WHERE isNaN(value) OR value = 50 GROUP BY value ORDER BY n"
    found = ask("POST", "/api/sql", json={"sql": sql, "rows": 10}).json()
    assert [column["name"] for column in found["columns"]] == ["value", "n"]
    assert found["rows"] == [["NaN", 1], [50.0, 2]]
    more = ask("POST", "/api/sql", json={"sql": "SELECT step FROM metrics", "rows": 5}).json()
    assert (len(more["rows"]), more["more"]) == (5, True)


def test_ids(ask: Callable[..., Any], get: Callable[..., Any]) -> None:
    """Ids are hexadecimal as everywhere else, also in lists, and are asked for with unhex."""
    span = get("/api/spans", limit=1)["spans"][0]
    sql = "SELECT trace_id, groupArray(span_id) AS spans, any(name) AS name FROM spans"
    where = f"WHERE trace_id = unhex('{span['trace_id']}') AND span_id = unhex('{span['span_id']}')"
    found = ask("POST", "/api/sql", json={"sql": f"{sql} {where} GROUP BY trace_id"}).json()
    assert found["rows"] == [[span["trace_id"], [span["span_id"]], span["name"]]]


def test_any_octets(ask: Callable[..., Any]) -> None:
    """Whatever octets an id has come out whole; in texts what is no UTF-8 is replaced."""
    octets = "00220a5cff80e280a8c3a9c285ed7f0d"
    sql = f"SELECT toFixedString(unhex('{octets}'), 16) AS id, unhex('61ff62') AS text, unhex('c3a9') AS letter"
    found = ask("POST", "/api/sql", json={"sql": sql}).json()
    assert found["rows"] == [[octets, "a\ufffdb", "\xe9"]]


@pytest.mark.parametrize(
    "body",
    [
        {"sql": "SELECT * FROM file('/etc/passwd')"},
        {"sql": "DROP TABLE metrics"},
        {"sql": "SELECT nonsense FROM metrics"},
        {"sql": "SELECT"},
        {"sql": ""},
        {"sql": "SELECT 1\0"},
        {"sql": "SELECT 1", "rows": 0},
        {"sql": "SELECT 1", "seconds": 1000},
        {"sql": "SELECT 1", "more": 1},
        {},
        [],
    ],
)
def test_refusals(ask: Callable[..., Any], body: Any) -> None:
    """Anything but a harmless SELECT is a 400 with the reason."""
    response = ask("POST", "/api/sql", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_compressed_bodies(ask: Callable[..., Any]) -> None:
    """A body is read as those of the receivers are: decompressed, and refused when it is too large afterwards."""
    question, gzipped = b'{"sql": "SELECT 1 AS one"}', {"content-encoding": "gzip"}
    found = ask("POST", "/api/sql", content=gzip.compress(question), headers=gzipped)
    assert found.json()["rows"] == [[1]]
    assert ask("POST", "/api/sql", content=gzip.compress(b" " * 2_000_000), headers=gzipped).status_code == 413
    assert ask("POST", "/api/sql", content=question, headers={"content-encoding": "br"}).status_code == 415


def test_odd_bodies(ask: Callable[..., Any]) -> None:
    """A body that is no JSON, or too long, or another method, is refused too."""
    assert ask("POST", "/api/sql", content=b"\xff{").status_code == 400
    assert ask("POST", "/api/sql", content=b" " * 2_000_000).status_code == 413
    assert ask("GET", "/api/sql").status_code == 405
