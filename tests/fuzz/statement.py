"""User-supplied SQL, as far as it is read before the engine sees it."""

from collections.abc import Iterator

from stepscope.hub.questions.sql.sql_check import Forbidden
from stepscope.hub.questions.sql.sql_check import check as check_statement


def check(data: bytes) -> None:
    """Judge a statement."""
    try:
        check_statement(data.decode("utf-8", "replace"))
    except Forbidden as error:
        str(error).encode("utf-8", "replace")


def seeds() -> Iterator[bytes]:
    """Statements that pass, and that do not."""
    yield b"SELECT r.id AS run, count() AS n FROM metrics AS m INNER JOIN runs AS r ON r.run = m.run GROUP BY run"
    yield b"SELECT arrayMap(x -> x + 1, [1, 2]) FROM (SELECT * FROM spans WHERE name IN ('a', 'b') LIMIT 5)"
    yield b"SELECT cast('1', 'UInt8')::String, quantile(0.5)(value) FROM metrics WHERE step BETWEEN 1 AND 2e3"
    yield b"SELECT * FROM file('/etc/passwd')"
