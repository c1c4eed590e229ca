"""Damaged, empty, odd and hostile files of every tool: a clear error or a counted rejection, never an exception."""

import json
import os
import sqlite3
import struct
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from stepscope.cli.main import main
from stepscope.dialects.mlflow.importer import MlflowDatabase, MlflowFolder, artifact_folders
from stepscope.dialects.trackio.importer import Trackio
from stepscope.dialects.wandb.importer import HEADER, WandbFiles, _is_staged
from stepscope.imports import source, sqlite
from stepscope.imports.source import Source
from stepscope.imports.tables import Csv, JsonLines, _distinct
from stepscope.model.records import Event, Metric
from stepscope.testing import read_run
from tests.imports.importing import bring, import_in_pieces, is_same


def table(
    capsys: pytest.CaptureFixture[str], place: Path, name: str, data: bytes
) -> tuple[list[Metric], dict[str, int]]:
    """Import a file of these bytes; its metrics, and what was left out."""
    place.mkdir()
    (place / name).write_bytes(data)
    done = bring(capsys, place / "home", place / name)
    assert is_same(place / "home", place / name)
    found = [each for each in read_run(place / "home", done["runs"][0]["run"]) if isinstance(each, Metric)]
    return found, done["left_out"]


def test_odd_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Semicolons, a byte order mark, NaN, equal and missing steps, cells that are no numbers, times in milliseconds."""
    data = b"\xef\xbb\xbfstep;loss;time\r\n1;0.5;1700000000\r\n1;nan;1700000001000\r\n;2;1e30\r\n\r\n"
    data += b"4;1_0;2026-01-31T12:00:00Z\r\n"
    data += b"5;x\xff\x00;1\r\n6;" + b"9" * 200_000 + b";\r\n7;inf;\r\n8;1\r\n9;0.2"
    found, left_out = table(capsys, tmp_path / "a", "a.csv", data)
    rows = [(each.step, repr(each.values)) for each in found]
    assert rows == [(1, "{'loss': 0.5}"), (1, "{'loss': nan}"), (2, "{'loss': 2}"), (7, "{'loss': inf}")]
    assert [each.time for each in found[:2]] == [1_700_000_000 * 10**9, 1_700_000_001 * 10**9]
    reasons = {"values that are not numbers": 2, "lines that cannot be read": 2, "unfinished last lines": 1}
    assert left_out == reasons


def test_odd_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lone surrogates, huge numbers, deep nesting, other values, and a last line without a newline."""
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    lines = [
        b'{"\\ud800": 1}',
        b'{"big": 1' + b"0" * 500 + b"}",
        deep,
        b"[1]",
        b"",
        b"\xff\xfe",
        b'{"step": 1e400, "x": 1}',
        b'{"x": NaN, "time": -5}',
    ]
    found, left_out = table(capsys, tmp_path / "a", "a.jsonl", b"\n".join(lines))
    values = [(each.step, repr(each.values)) for each in found]
    assert values == [(1, "{'big': inf}"), (5, "{'x': 1}"), (6, "{'x': nan}")]
    assert left_out == {"records that cannot be stored": 1, "lines that cannot be read": 3}


def test_a_line_that_is_too_long_costs_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records after the damage are imported."""
    monkeypatch.setattr("stepscope.imports.tables.LONGEST_LINE", 100)
    lines = [b'{"a": 1}', b'{"b": ' + b"1" * 1000 + b"}", b'{"c": 3}', b""]
    found, left_out = table(capsys, tmp_path / "a", "a.jsonl", b"\n".join(lines))
    assert [each.values for each in found] == [{"a": 1}, {"c": 3}]
    assert left_out == {"lines that are too long": 1}


def test_a_table_of_many_columns_takes_linear_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns of one name are numbered, and none takes the name of another; a hundred thousand of them take seconds."""
    found, _ = table(capsys, tmp_path / "a", "a.csv", b"a,a,a.1,a\n1,2,3,4\n")
    assert [each.values for each in found] == [{"a": 1, "a.2": 2, "a.1": 3, "a.3": 4}]
    many = 100_000
    start = time.process_time()
    assert len(set(_distinct(["a", "a.7"] * many))) == 2 * many
    assert time.process_time() - start < 5.0


def test_what_is_no_file_is_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A named pipe of any name would make the command wait for ever."""
    for name in ("a.csv", "a.jsonl", "run-a.wandb", "mlflow.db", "events.out.tfevents.1", "a.parquet"):
        os.mkfifo(tmp_path / name)
    assert main(["import", str(tmp_path), "--home", str(tmp_path / "home")]) == 2
    assert "nothing that can be imported" in capsys.readouterr().err


def test_a_value_without_a_line_break_is_not_read_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sparse file of gigabytes among the metrics of an MLflow folder costs itself."""
    run = tmp_path / "mlruns" / "1" / ("a" * 32)
    (run / "metrics").mkdir(parents=True)
    (run.parent / "meta.yaml").write_text("experiment_id: '1'\nname: e\nlifecycle_stage: active\n")
    (run / "meta.yaml").write_text(
        f"run_id: {run.name}\nrun_name: n\nstatus: 3\nstart_time: 1\nlifecycle_stage: active\n"
    )
    (run / "metrics" / "loss").write_text("1 2 3\n")
    with open(run / "metrics" / "sparse", "wb") as file:
        file.truncate(20 << 30)
    done = bring(capsys, tmp_path / "home", tmp_path / "mlruns")
    assert done["left_out"] == {"sparse: a line is too long, the rest was left out": 1}
    assert [each.values for each in read_run(tmp_path / "home", run.name) if isinstance(each, Metric)] == [{"loss": 2}]


def test_rows_that_have_no_number_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite keeps anything in a column of numbers; a second import goes on where the first one ended."""
    with closing(sqlite3.connect(tmp_path / "p.db")) as database:
        database.executescript("""
            CREATE TABLE metrics (id, timestamp, run_name, step, metrics);
            CREATE TABLE configs (id, run_name, config);
            INSERT INTO metrics VALUES ('a', NULL, 'r', NULL, '{"a": 1}'), (1e300, '2026', 'r', 9, '{"a": 2}'),
              (1, '2026-01-01', 'r', 1, '{"a": 3}');
        """)
    for _ in range(2):
        bring(capsys, tmp_path / "home", tmp_path / "p.db")
    found = [each for each in read_run(tmp_path / "home", "r") if isinstance(each, Metric)]
    assert [each.values for each in found] == [{"a": 3}]


def test_what_a_database_defines_is_not_run(tmp_path: Path) -> None:
    """A view, which may have rows without end, and a value that a column makes of nothing are errors that are told."""
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as database:
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
        database.executescript(f"""
            CREATE VIEW endless AS {endless};
            CREATE TABLE large (a, b GENERATED ALWAYS AS (zeroblob(500000000)) VIRTUAL);
            INSERT INTO large (a) VALUES (1);
            CREATE TABLE plain (a);
            INSERT INTO plain VALUES (7);
        """)
    skipped: list[str] = []
    rows = [
        sqlite.select(file, f"SELECT * FROM {name}", (), lambda reason, count: skipped.append(reason))
        for name in ("endless", "large", "plain")
    ]
    assert rows == [[], [], [(7,)]]
    assert len(skipped) == 2


EMPTY = ("a.csv", "a.jsonl", "run-a.wandb", "mlflow.db", "events.out.tfevents.1", "a.parquet")


@pytest.mark.parametrize("name", EMPTY)
def test_empty_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty file is imported as an empty run, or refused with a reason."""
    (tmp_path / name).write_bytes(b"")
    code = main(["import", str(tmp_path / name), "--home", str(tmp_path / "home")])
    assert code in (0, 2)
    assert code == 0 or "nothing that can be imported" in capsys.readouterr().err


def test_utf_16_is_refused_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables in UTF-16 are refused with advice."""
    (tmp_path / "a.csv").write_text("step,loss\n1,2\n", "utf-16")
    assert main(["import", str(tmp_path / "a.csv"), "--home", str(tmp_path / "home")]) == 2
    assert "save them as UTF-8" in capsys.readouterr().err


def wandb_file(path: Path, rows: list[dict[str, object]]) -> None:
    """Write history records as an offline run has them."""

    def field(number: int, data: bytes) -> bytes:
        size, length = len(data), b""
        while size > 127:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        head = number << 3 | 2
        key = bytes([head]) if head < 128 else bytes([head & 0x7F | 0x80, head >> 7])
        return key + length + bytes([size]) + data

    out = HEADER
    for row in rows:
        items = b"".join(
            field(1, field(1, key.encode()) + field(16, json.dumps(each).encode())) for key, each in row.items()
        )
        body = field(2, items)
        out += struct.pack("<IHB", zlib.crc32(b"\1" + body), len(body), 1) + body
    path.write_bytes(out)


def test_odd_wandb_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps and times beyond all bounds are replaced, a cut record waits, a damaged one costs its block."""
    rows: list[dict[str, object]] = [
        {"_step": 1, "_timestamp": 1.7e9, "a": 1},
        {"_step": 1e300, "_timestamp": 1e300, "a": 2},
        {"_step": "x", "_timestamp": None, "a": float("nan"), "b": "text"},
    ]
    wandb_file(tmp_path / "run-x.wandb", rows)
    whole = (tmp_path / "run-x.wandb").read_bytes()
    (tmp_path / "run-x.wandb").write_bytes(whole[:-3])
    home = tmp_path / "home"
    assert bring(capsys, home, tmp_path / "run-x.wandb")["runs"][0]["values"] == 2
    (tmp_path / "run-x.wandb").write_bytes(whole)
    done = bring(capsys, home, tmp_path / "run-x.wandb")
    assert (done["runs"][0]["values"], done["left_out"]) == (1, {})
    texts = [each.attrs for each in read_run(home, "x") if isinstance(each, Event) and each.name == "wandb.values"]
    assert texts == [{"b": "text"}]
    found = [each for each in read_run(home, "x") if isinstance(each, Metric)]
    assert [(each.step, each.time) for each in found] == [(1, 1_700_000_000 * 10**9)] * 3
    assert is_same(home, tmp_path / "run-x.wandb")
    (tmp_path / "run-y.wandb").write_bytes(whole[:-3] + b"\xff\xff\xff")
    assert bring(capsys, home, tmp_path / "run-y.wandb")["left_out"] == {"damaged blocks": 1}


def mlflow_database(path: Path, values: list[tuple[object, ...]]) -> None:
    """A database with the tables of MLflow; SQLite keeps values of any type in any column."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE experiments (experiment_id, name);"
            "CREATE TABLE runs (run_uuid, name, status, start_time, experiment_id, lifecycle_stage, artifact_uri);"
            "CREATE TABLE params (run_uuid, key, value); CREATE TABLE tags (run_uuid, key, value);"
            "CREATE TABLE metrics (run_uuid, key, value, timestamp, step, is_nan);"
            "INSERT INTO experiments VALUES (1, 'e');"
            "INSERT INTO runs VALUES ('r1', NULL, 'FINISHED', 'soon', 1, 'active', 'file://[half');"
            "INSERT INTO params VALUES ('r1', 'api_key', 'sk-' || hex(randomblob(20)));"
        )
        database.executemany("INSERT INTO metrics VALUES ('r1', ?, ?, ?, ?, ?)", values)
        database.commit()


@pytest.mark.parametrize(
    "uri", ["", "s3://bucket/a", "file://[half", "/" + "x" * 5000, "file:///a%00b", "/proc/self/fd/99"]
)
def test_odd_addresses_of_artifacts(uri: str) -> None:
    """An address that is not on this machine, or none at all, has no files."""
    assert artifact_folders(uri, "99", lambda reason, count: None) == []


def test_a_store_cannot_name_any_folder(tmp_path: Path) -> None:
    """Only the artifacts that MLflow itself would have written for a run are copied, however a store names others."""
    for name in ("run/artifacts", "run/secrets", "other/artifacts"):
        (tmp_path / name).mkdir(parents=True)
    found = {
        name: artifact_folders(f"{tmp_path}/{name}", "run", lambda reason, count: None)
        for name in ("run/artifacts", "run/secrets", "other/artifacts", "run/artifacts/../../other/artifacts")
    }
    assert [name for name, folders in found.items() if folders] == ["run/artifacts"]


def test_a_file_of_wandb_cannot_name_any_file(tmp_path: Path) -> None:
    """Files of artifacts are copied only from the folder in which the client itself keeps its copies."""
    staging, other = tmp_path / "artifacts" / "staging", tmp_path / "private"
    for folder in (staging, other):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"data")
    (staging / "link").symlink_to(other / "file")
    assert _is_staged(staging / "file")
    for path in (other / "file", staging / "link", staging / ".." / ".." / "private" / "file", staging / "none"):
        assert not _is_staged(path), path


def test_odd_mlflow_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of the wrong types are counted, secrets among the parameters are masked, a damaged file is named."""
    rows = [
        ("a", 1.0, 5, 1, 0),
        ("a", None, 5, 1, 0),
        ("a", "x", 5, 1, 0),
        (None, 1.0, 5, 1, 0),
        ("a", 2.0, 10**17, 1, 0),
        ("a", 3.0, 6, None, 0),
    ]
    mlflow_database(tmp_path / "mlflow.db", [*rows, *(("b", float(step), step, step, 0) for step in range(3000))])
    home = tmp_path / "home"
    done = bring(capsys, home, tmp_path / "mlflow.db")
    assert (done["runs"][0]["values"], done["left_out"]) == (3001, {"values that cannot be read": 5})
    start = next(each for each in read_run(home, "r1") if isinstance(each, Event))
    assert "sk-" not in str(start.attrs)
    data = bytearray((tmp_path / "mlflow.db").read_bytes())
    data[4096 * 6 :] = b"\x00" * (len(data) - 4096 * 6)
    (tmp_path / "bad.db").write_bytes(data)
    code = main(["import", str(tmp_path / "bad.db"), "--home", str(tmp_path / "other")])
    said = capsys.readouterr()
    assert code in (0, 2)
    assert "bad.db: " in said.out + said.err


def trackio_database(path: Path) -> None:
    """A database with the tables of Trackio, some rows of which cannot be read."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name, config);"
            "INSERT INTO configs VALUES (1, 'r', 'no JSON');"
        )
        rows = [("2026-01-31T12:00:00", "r", step, json.dumps({"x": step})) for step in range(20)]
        rows += [
            ("never", "r", 10**30 and 2**62, '{"x": 1e999}'),
            ("9999-12-31T00:00:00", "r", 21, '{"x": 1}'),
            ("", "r", None, "{"),
        ]
        database.executemany("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", rows)
        database.commit()


def test_odd_trackio_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid times, steps out of range and rows that are not JSON."""
    trackio_database(tmp_path / "p.db")
    done = bring(capsys, tmp_path / "home", tmp_path / "p.db")
    assert (done["runs"][0]["values"], done["left_out"]) == (22, {"rows that cannot be read": 1})
    assert is_same(tmp_path / "home", tmp_path / "p.db")


def mlflow_folder(place: Path) -> None:
    """A folder of MLflow with lines that cannot be read."""
    run = place / "0" / "abc"
    (run / "metrics" / "train").mkdir(parents=True)
    (place / "0" / "meta.yaml").write_text("name: 'it''s'\n")
    (run / "meta.yaml").write_text('run_id: abc\nrun_name: "caf\\xE9"\nstart_time: 99999999999999999999\n')
    lines = [b"%d %f %d\n" % (1_700_000_000_000 + step, step, step) for step in range(40)]
    bad = [b"\n", b"1\n", b"x y z\n", b"1 2 99999999999999999999\n", b"1e5 1 1\n", b"\xff\xff 1 1\n"]
    (run / "metrics" / "train" / "loss").write_bytes(b"".join(lines + bad) + b"5 1 ")
    (run / "metrics" / "acc").write_bytes(b"".join(lines))


def test_odd_mlflow_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that cannot be read are counted; quoted names in the description are read."""
    mlflow_folder(tmp_path / "mlruns")
    done = bring(capsys, tmp_path / "home", tmp_path)
    assert [(each["name"], each["values"]) for each in done["runs"]] == [("café", 80)]
    assert sum(done["left_out"].values()) == 6
    assert is_same(tmp_path / "home", tmp_path)


def csv_file(place: Path) -> None:
    """A table."""
    place.write_text("step,a,b\n" + "".join(f"{step},{step / 4},{step}\n" for step in range(50)))


def json_file(place: Path) -> None:
    """The same as JSON lines."""
    place.write_text("".join(json.dumps({"step": step, "a": step / 4}) + "\n" for step in range(50)))


@pytest.mark.parametrize(
    ("kind", "name", "write"),
    [
        (Csv(), "a.csv", csv_file),
        (JsonLines(), "a.jsonl", json_file),
        (
            WandbFiles(),
            "run-x.wandb",
            lambda path: wandb_file(path, [{"_step": step, "a": step} for step in range(50)]),
        ),
        (
            MlflowDatabase(),
            "m.db",
            lambda path: mlflow_database(path, [("a", 1.5, step, step, 0) for step in range(50)]),
        ),
        (MlflowFolder(), "mlruns", mlflow_folder),
        (Trackio(), "p.db", trackio_database),
    ],
)
def test_every_import_goes_on_where_it_was(
    kind: Source, name: str, write: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after each chunk and begun again, nothing is missing and nothing comes twice."""
    monkeypatch.setattr(source, "CHUNK_RECORDS", 7)
    for module in ("mlflow", "trackio"):
        monkeypatch.setattr(f"stepscope.dialects.{module}.importer.CHUNK_ROWS", 10)
    assert callable(write)
    write(tmp_path / name)
    assert import_in_pieces(tmp_path / "home", kind, tmp_path / name) > 2
    assert is_same(tmp_path / "home", tmp_path / name)


def test_names_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file name of any bytes names a run."""
    path = Path(str(tmp_path) + "/b\udcff.jsonl")
    path.write_text('{"a": 1}\n')
    assert bring(capsys, tmp_path / "home", tmp_path)["runs"][0]["values"] == 1
