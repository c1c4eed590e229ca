"""Questions about replicas are restricted to the tables that matter: each table costs requests to ZooKeeper."""

import pytest

from stepscope.hub.store.cluster import dialect


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT id FROM runs", ["runs"]),
        (
            "SELECT step FROM\n    metrics WHERE series IN (SELECT series FROM series WHERE run = 1)",
            ["metrics", "series"],
        ),
        ("SELECT 1 FROM (SELECT run FROM spans) ANY LEFT JOIN runs USING run", ["runs", "spans"]),
        ("SELECT max(run) FROM runs UNION ALL SELECT max(run) FROM ledger", ["ledger", "runs"]),
        ("SELECT count() FROM cluster('main', system, parts)", ["cluster"]),
        ("SELECT 1", []),
    ],
)
def test_the_tables_of_a_query(sql: str, tables: list[str]) -> None:
    """Also those of its subqueries, each once."""
    assert dialect.tables_read(sql) == tables


def test_rows_that_replicas_lack_are_those_of_some_tables_or_of_all() -> None:
    """A query of ours is partial only by the tables that it reads; one of a user may read any."""
    assert dialect.misses_rows(["ledger", "runs"]).endswith("AND table IN ('ledger', 'runs')")
    assert "table IN" not in dialect.misses_rows(())
