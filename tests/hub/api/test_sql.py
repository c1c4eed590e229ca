"""SQL over HTTP: questions pass, everything else is refused in a sentence."""

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
    """Whatever is not a harmless SELECT is a 400 that says why."""
    response = ask("POST", "/api/sql", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_odd_bodies(ask: Callable[..., Any]) -> None:
    """A body that is no JSON, or too long, or another method, is refused too."""
    assert ask("POST", "/api/sql", content=b"\xff{").status_code == 400
    assert ask("POST", "/api/sql", content=b" " * 2_000_000).status_code == 413
    assert ask("GET", "/api/sql").status_code == 405
