"""Questions about replicas are restricted to the tables that matter: each table costs requests to ZooKeeper."""

import pytest

from stepscope.hub.store.cluster import dialect
from stepscope.hub.store.engine import EngineError


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


@pytest.mark.parametrize(
    ("said", "queued"),
    [
        ("There are 1 unfinished hosts (0 of them are currently active), they are going to execute the query", True),
        ("There are 2 unfinished hosts (1 of them are currently active), they are going to execute the query", False),
        ("There are 1 unfinished hosts (0 of them are currently executing the task), they are going to", True),
        ("There are 1 unfinished hosts (1 of them are currently executing the task), they are going to", False),
        ("There are 1 unfinished hosts (0 of them are currently executing the task, 1 are inactive). They", True),
        ("There are 2 unfinished hosts (0 of them are currently executing the task, 1 are inactive). They", False),
        ("Timeout exceeded: elapsed 61 seconds", False),
    ],
)
def test_a_statement_that_waits_for_servers_that_are_down(said: str, queued: bool) -> None:
    """In the words of 18.16 and of newer servers; one that a living server has not done yet is not queued."""
    long = f"Watching task /clickhouse/task_queue/ddl/query-7 is executing longer than 6 seconds. {said}"
    assert dialect.is_queued(EngineError(long, 159)) is queued
    assert not dialect.is_queued(EngineError(long, 210))
