"""What is said to one server becomes what a cluster runs; every table of the schema has its place."""

import pytest

from stepscope.hub.store import schema
from stepscope.hub.store.cluster.cluster_sql import ClusterSql

SQL = ClusterSql("main", "db")
TABLES = {**schema.FIRST, **schema.SECOND, **schema.FIFTH, **schema.SEVENTH, **schema.EIGHTH, **schema.NINTH}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_replicated_and_sharded_by_run(name: str) -> None:
    """The rows on the shards, under a path of their own, and a Distributed table of the same name."""
    words = dict.fromkeys(("delta", "fast", "zip", "settings", "dense", "long", "by_commit"), "")
    sql = f"CREATE TABLE IF NOT EXISTS {name} {TABLES[name].format(**words)}"
    local, distributed = SQL.statements(sql)
    assert local.startswith(f"CREATE TABLE IF NOT EXISTS db_shard.{name} ON CLUSTER main (")
    path = f"('/clickhouse/tables/{{shard}}/db_shard/{name}', '{{replica}}'"
    assert ("ENGINE = Null" in local) != (path in local)
    key = "bitShiftRight(series, 32)" if name in (*schema.BY_SERIES, "totals_in") else "run"
    assert distributed.endswith(f"ENGINE = Distributed(main, db_shard, {name}, {key})")
    assert SQL.made_by(sql) == ("db", name)


def test_versions_of_rows_are_kept() -> None:
    """The column that decides which row replaces the other follows the path."""
    (local, _) = SQL.statements(
        "CREATE TABLE IF NOT EXISTS x (run UInt32, v Int64) ENGINE = ReplacingMergeTree(v) ORDER BY run"
    )
    assert "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/db_shard/x', '{replica}', v) ORDER BY run" in local


def test_the_view_works_on_each_shard() -> None:
    """The view of each shard aggregates the rows of that shard into its totals."""
    (view,) = SQL.statements(schema.FIRST_VIEW)
    assert "db_shard.totals_view ON CLUSTER main TO db_shard.totals AS" in view
    assert "FROM db_shard.totals_in GROUP BY" in view
    assert SQL.made_by(schema.FIRST_VIEW) == ("db_shard", "totals_view")


def test_changes_reach_the_rows() -> None:
    """Deletions, partitions and merges on every shard; a new column in both tables."""
    assert SQL.statements("ALTER TABLE spans DELETE WHERE commit > 3") == [
        "ALTER TABLE db_shard.spans ON CLUSTER main DELETE WHERE commit > 3"
    ]
    assert SQL.statements("OPTIMIZE TABLE spans PARTITION ID '7' FINAL") == [
        "OPTIMIZE TABLE db_shard.spans ON CLUSTER main PARTITION ID '7' FINAL"
    ]
    added = SQL.statements("ALTER TABLE spans ADD COLUMN flags UInt32 DEFAULT 0")
    assert [each.partition(" ON CLUSTER")[0] for each in added] == [
        "ALTER TABLE db_shard.spans",
        "DROP TABLE IF EXISTS db.spans",
        "CREATE TABLE IF NOT EXISTS db.spans",
    ]


def test_the_rest_is_left_alone() -> None:
    """Queries of our tables need no change; the servers' own tables are asked on every shard."""
    assert SQL.statements("INSERT INTO totals SELECT 1") == ["INSERT INTO totals SELECT 1"]
    assert SQL.query("SELECT * FROM metrics") == "SELECT * FROM metrics"
    assert SQL.made_by("SELECT 1") is None
    asked = SQL.query("SELECT sum(rows) FROM system.parts WHERE database = currentDatabase()")
    assert asked == "SELECT sum(rows) FROM cluster('main', system, parts) WHERE database = 'db_shard'"
