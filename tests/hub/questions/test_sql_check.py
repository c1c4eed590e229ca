"""People may ask the store anything that stays inside it, and nothing else."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.hub.questions.sql.sql_check import CLOSED, Forbidden, Node, _node, check, run_select
from stepscope.hub.store import schema
from stepscope.hub.store.engine import EngineError, Limits, RowStream
from stepscope.hub.store.store import Store, open_store
from stepscope.model.ports import Batch
from stepscope.model.records import Record, Span
from tests.hub.store.contract import T, losses, writer
from tests.pattern_pumps import is_linear

pytest.importorskip("tests.chdb")

ATTACKS = (
    # files
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT file('/etc/passwd')",
    "SELECT FILE('/etc/passwd')",
    "SELECT file ('/etc/passwd')",
    "SELECT * FROM fileCluster('c', '/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM `/etc/passwd`",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM metrics, '/etc/passwd'",
    "SELECT * FROM metrics JOIN file('/etc/passwd') AS f ON 1",
    "SELECT * FROM (SELECT * FROM (file('/etc/passwd')))",
    "SELECT 1 IN file('/etc/passwd')",
    "SELECT 1 WHERE 1 IN (SELECT * FROM file('/etc/passwd'))",
    "SELECT arrayMap(x -> file(x), ['/etc/passwd'])",
    "SELECT * APPLY(file) FROM runs",
    "SELECT * APPLY file FROM runs",
    "SELECT * REPLACE(file('/etc/passwd') AS id) FROM runs",
    "SELECT 1 INTO OUTFILE '/tmp/x'",
    "SELECT 1 INTO OUTFILE '/tmp/x' FORMAT CSV",
    "SELECT 1 FORMAT CSV",
    # the network, other programs, other databases
    "SELECT * FROM url('http://127.0.0.1:1/x', CSV, 'a String')",
    "SELECT * FROM s3('https://b.s3.amazonaws.com/k')",
    "SELECT * FROM remote('127.0.0.1:9000', system.one)",
    "SELECT * FROM remoteSecure('h', db.t)",
    "SELECT * FROM mysql('h:3306', 'd', 't', 'u', 'p')",
    "SELECT * FROM postgresql('h', 'd', 't', 'u', 'p')",
    "SELECT * FROM sqlite('/tmp/x.db', 't')",
    "SELECT * FROM jdbc('x', 'y')",
    "SELECT * FROM executable('id', CSV, 'a String')",
    "SELECT * FROM Python(x)",
    "SELECT * FROM cluster('c', system.one)",
    "SELECT * FROM merge('.*', '.*')",
    "SELECT * FROM view(SELECT 1)",
    "SELECT * FROM input('a String')",
    "SELECT * FROM generateRandom('a String')",
    "SELECT * FROM numbers(10)",
    # dictionaries, settings, the engine itself
    "SELECT dictGet('d', 'a', 1)",
    "SELECT joinGet('t', 'a', 1)",
    "SELECT getSetting('max_threads')",
    "SELECT @@max_threads",
    "SELECT hostName(), currentUser(), version()",
    "SELECT currentDatabase()",
    "SELECT sleep(3)",
    "SELECT addressToLine(1)",
    "SELECT catboostEvaluate('/tmp/m', 1)",
    "SELECT * FROM system.settings",
    "SELECT * FROM system . settings",
    "SELECT system.settings.name FROM metrics",
    "SELECT * FROM SYSTEM.users",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM INFORMATION_SCHEMA.TABLES",
    "SELECT * FROM default.x",
    "SELECT * FROM stepscope.metrics",
    "SELECT 1 IN system.one",
    "SELECT 0 IN (system.one)",
    "SELECT 1 FROM metrics GLOBAL JOIN system.one USING dummy",
    "SELECT 1 FROM metrics AS system WHERE system.step = 1",
    "SELECT 1 SETTINGS max_threads = 100",
    "SELECT * FROM (SELECT 1 SETTINGS readonly = 0)",
    "SELECT * FROM totals_in",
    "SELECT * FROM versions",
    "SELECT * FROM metrics SAMPLE 0.1",
    "SELECT count() FROM metrics GROUP BY step WITH TOTALS",
    "SELECT COLUMNS('.*') FROM runs",
    "SELECT {x:String}",
    "SELECT {x:Identifier} FROM metrics",
    # anything but one SELECT
    "",
    ";",
    "INSERT INTO runs SELECT * FROM runs",
    "DROP TABLE runs",
    "SELECT 1; DROP TABLE runs",
    "SELECT 1;;",
    "SET readonly = 0",
    "SYSTEM SHUTDOWN",
    "ATTACH TABLE x FROM '/tmp/x' (a Int8) ENGINE = Log",
    "CREATE TABLE x ENGINE = File(CSV, '/etc/passwd')",
    "EXPLAIN SELECT 1",
    "DESCRIBE TABLE file('/etc/passwd')",
    "SHOW TABLES",
    "WITH file('/etc/passwd') AS x SELECT x",
    "FROM file('/etc/passwd') SELECT *",
    "(SELECT 1)",
    "KILL QUERY WHERE 1",
    "BACKUP DATABASE stepscope TO File('/tmp/b')",
    # tokens that a parser may read otherwise
    "SELECT 1 -- \n FROM system.one",
    "SELECT 1 /* */ FROM metrics",
    "SELECT 1 # x",
    "SELECT 1 // x",
    "SELECT f/**/ile('/etc/passwd')",
    "SELECT 'a' 'b'",
    "SELECT x'41'",
    "SELECT $$x$$",
    "SELECT ‘x’",
    "SELECT \u00a01",
    "SELECT 1\0",
    "SELECT 'unfinished",
    "SELECT (1",
    "SELECT 1)",
    "SELECT * FROM",
    "SELECT 1 FROM metrics JOIN",
    "SELECT " + "1, " * 20_000 + "1",
)

FAIR = (
    "SELECT 1",
    "select count() from metrics;",
    "SELECT m.step, m.value FROM metrics AS m WHERE m.series IN (SELECT series FROM series WHERE key = 'trainer/loss')",
    """SELECT key, avg(value), quantile(0.5)(value), countIf(isNaN(value)) AS n FROM metrics
    INNER JOIN series USING series GROUP BY key HAVING count() > 1 ORDER BY key DESC LIMIT 10 OFFSET 0""",
    "SELECT name, attr_values[indexOf(attr_names, 'x')] AS x FROM spans WHERE name LIKE 'tr%' AND duration / 1e6 > 1",
    "SELECT toStartOfMinute(toDateTime(intDiv(time, 1000000000))) AS t, count(*) FROM logs GROUP BY t WITH ROLLUP",
    "SELECT 'a\\' FROM file('",
    "SELECT trace_id FROM spans",
    "SELECT a.id, b.rank FROM runs a, writers b WHERE a.run = b.run",
    "SELECT CASE WHEN 1 THEN 'it''s' ELSE 'a\\'b' END, CAST('1' AS Int64), 1::Int64, [1, 2][1], -1.5e3, 0x1F FROM runs",
    "SELECT arrayMap(x -> length(x), attr_names) FROM spans ARRAY JOIN attr_names AS n",
    "SELECT 1 FROM runs UNION ALL SELECT 2 FROM runs",
    "SELECT n FROM (SELECT step, row_number() OVER (PARTITION BY series ORDER BY step) AS n FROM metrics) AS x",
    "SELECT id FROM runs WHERE NOT EXISTS (SELECT 1 FROM alerts) AND id != 'SETTINGS; -- DROP file('",
    "SELECT sumMerge(points) FROM totals GROUP BY series",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a few points."""
    opened = open_store(tmp_path_factory.mktemp("sql") / "store")
    span: Record = Span(T, 1, 1, None, b"\xff" * 16, b"\x80" * 8, None, "train.step")
    opened.write(Batch(writer("sql"), 0, [span, *losses((step, float(step)) for step in range(1000))]))
    yield opened
    opened.close()


def read(store: Store, statement: str, limits: Limits | None = None) -> tuple[RowStream, list[list[Any]]]:
    """Ask, and read the answer to its end."""
    with run_select(store.engine, statement, limits) as found:
        rows = [row for block in found.blocks for row in block]
    return found, rows


@pytest.mark.parametrize("statement", ATTACKS)
def test_an_attack_is_forbidden_before_it_reaches_the_engine(statement: str) -> None:
    """The words alone are enough to refuse it."""
    with pytest.raises(Forbidden):
        check(statement.strip().removesuffix(";"))


def test_the_engines_own_parser_is_a_second_barrier(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first should miss, the engine's syntax tree shows."""
    monkeypatch.setattr("stepscope.hub.questions.sql.sql_check.check", lambda statement: None)
    passed = []
    for statement in ATTACKS:
        try:
            read(store, statement)
        except (Forbidden, EngineError):
            continue
        passed.append(statement)
    harmless = re.compile(r"/\*|# x|// x|x'41'|\$\$x\$\$|‘x’|\u00a0|\(SELECT 1\)|^SELECT 1;;|TOTALS")
    assert [statement for statement in passed if not harmless.search(statement)] == []
    assert store.engine.query("SELECT count() AS runs FROM runs").one("runs") == 1


@pytest.mark.parametrize("statement", FAIR)
def test_a_permitted_query_is_answered(store: Store, statement: str) -> None:
    """Joins, aggregates, arrays, windows, unions and subqueries over the store's tables."""
    assert read(store, statement)[0].names


def test_answers_are_limited(store: Store) -> None:
    """Answers are limited in rows (with `more`), time and memory."""
    short, rows = read(store, "SELECT step FROM metrics ORDER BY step", Limits(rows=10))
    assert ([row[0] for row in rows], short.more) == (list(range(10)), True)
    assert not read(store, "SELECT step FROM metrics LIMIT 10", Limits(rows=10))[0].more
    wide = "SELECT count() FROM metrics a, metrics b, metrics c, metrics d WHERE a.value + b.value > c.value + d.value"
    with pytest.raises(EngineError, match="Timeout"):
        read(store, wide, Limits(seconds=0.3))
    with pytest.raises(EngineError, match=r"[Mm]emory"):
        read(store, "SELECT groupArray(a.value) FROM metrics a, metrics b, metrics c", Limits(memory=32 * 1024**2))
    with pytest.raises(EngineError, match="a row of the answer is larger than 1 MiB"):
        read(store, "SELECT range(1000000)", Limits(row=1024**2))


def test_an_answer_comes_in_blocks(store: Store) -> None:
    """Rows can be read before the last is there, and leaving early ends the query."""
    wide = "SELECT a.step, leftPad('', 100, 'x') FROM metrics a, metrics b"
    with run_select(store.engine, wide, Limits(rows=200_000, seconds=60)) as found:
        assert [len(row[1]) for row in next(found.blocks)][:2] == [100, 100]
    running = store.engine.query("SELECT count() AS n FROM system.processes WHERE query LIKE '%leftPad%100%'")
    assert running.one("n") <= 1  # this one


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT step, value FROM metrics WHERE step < 0",
        "SELECT count() FROM metrics WHERE step < 0",
        "SELECT max(step) AS a FROM metrics GROUP BY series HAVING a < 0",
        "SELECT arrayJoin(range(3000000)) AS a WHERE a = 2999999",
        "SELECT step FROM metrics WHERE value = 999",
        "SELECT a.step FROM metrics a, metrics b WHERE a.step < 5",
        "SELECT arrayJoin([1, 2]) AS a UNION ALL SELECT toUInt8(3) AS a WHERE 0",
    ],
)
def test_a_streamed_answer_is_the_whole_answer(store: Store, statement: str) -> None:
    """Names, types and rows are those of the query asked at once, also where there are few rows or none."""
    found, rows = read(store, statement)
    whole = store.engine.query(statement)
    assert found.types
    assert sorted(rows) == sorted([list(row) for row in whole.rows()])


def test_no_column_is_a_closed_word() -> None:
    """Every column of the store can be asked for."""
    columns = re.findall(r"[(,]\s*([a-z_]+) (?:U?Int|String|Float|Fixed|Array|Agg)", " ".join(schema.FIRST.values()))
    assert "commit" in columns
    assert {column.upper() for column in columns} & CLOSED == set()


@pytest.mark.parametrize("piece", [" (alias ", " (children ", " (alias (children 7)", " ", "a", ")"])
def test_a_line_of_a_tree_is_read_once(piece: str) -> None:
    """Names in a statement, which a client wrote, may look like what follows a name."""
    assert is_linear(_node, "Identifier a", piece, "!")
    assert is_linear(_node, "Identifier a", piece, "")


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("  Identifier metrics.value", "Identifier", "metrics.value"),
        ("Function plus (alias total) (children 1)", "Function", "plus"),
        ("Literal 'a (alias b)'", "Literal", "'a (alias b)'"),
        ("TableIdentifier runs (children 2)", "TableIdentifier", "runs"),
        ("Literal 'x (children 2' (children 1)", "Literal", "'x (children 2'"),
        ("-- no node", "-- no node", ""),
    ],
)
def test_lines_of_a_tree(line: str, kind: str, name: str) -> None:
    """A kind, a name, perhaps an alias and a count of children."""
    assert _node(line) == Node(len(line) - len(line.lstrip()), kind, name)
