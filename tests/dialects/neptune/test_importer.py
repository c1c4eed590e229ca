"""Parquet files in the layout of neptune-exporter, which is not on PyPI, become runs with the same values."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.neptune.importer import NeptuneExport
from stepscope.imports import source
from stepscope.model.records import Event, Histogram, Log
from stepscope.testing import read_run
from tests.imports.importing import bring, check_finds_differences, import_in_pieces, is_same, series

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SCHEMA = pyarrow.schema(
    {
        "project_id": pyarrow.string(),
        "run_id": pyarrow.string(),
        "attribute_path": pyarrow.string(),
        "attribute_type": pyarrow.string(),
        "step": pyarrow.decimal128(18, 6),
        "timestamp": pyarrow.timestamp("ms", tz="UTC"),
        "int_value": pyarrow.int64(),
        "float_value": pyarrow.float64(),
        "string_value": pyarrow.string(),
        "bool_value": pyarrow.bool_(),
        "datetime_value": pyarrow.timestamp("ms", tz="UTC"),
        "string_set_value": pyarrow.list_(pyarrow.string()),
        "file_value": pyarrow.struct({"path": pyarrow.string()}),
        "histogram_value": pyarrow.struct(
            {
                "type": pyarrow.string(),
                "edges": pyarrow.list_(pyarrow.float64()),
                "values": pyarrow.list_(pyarrow.float64()),
            }
        ),
    }
)
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(path: str, kind: str, step: str | None = None, **values: Any) -> dict[str, Any]:
    """A row as the exporter writes it."""
    empty = dict.fromkeys(SCHEMA.names)
    known = {"project_id": "team/exp", "run_id": "RUN-1", "attribute_path": path, "attribute_type": kind}
    at = {} if step is None else {"step": Decimal(step), "timestamp": BEGAN}
    return {**empty, **known, **at, **values}


def write_export(folder: Path) -> None:
    """Write a run in two parts, in row groups of ten."""
    about = [
        row("sys/name", "string", string_value="nm"),
        row("sys/tags", "string_set", string_set_value=["a", "b"]),
        row("sys/creation_time", "datetime", datetime_value=BEGAN),
        row("sys/description", "string", string_value="notes"),
        row("sys/failed", "bool", bool_value=True),
        row("params/lr", "float", float_value=0.5),
        row("params/depth", "int", int_value=3),
    ]
    losses = [row("train/loss", "float_series", str(step), float_value=step / 4) for step in range(30)]
    losses[7]["float_value"] = None  # NaN, as pandas hands it to Arrow
    rest = [
        row("train/loss", "float_series", "30.500000", float_value=math.inf),
        row("log", "string_series", "1", string_value="hello"),
        row(
            "bins",
            "histogram_series",
            "2",
            histogram_value={"type": "COUNTING", "edges": [0.0, 1.0, 2.0], "values": [3.0, 4.0]},
        ),
        row("model", "file", file_value={"path": "RUN-1/model"}),
    ]
    place = folder / "team_exp_1a2b"
    place.mkdir(parents=True)
    for number, rows in enumerate(([*about, *losses], rest)):
        table = pyarrow.Table.from_pylist(rows, schema=SCHEMA)
        parquet.write_table(table, place / f"RUN-1_9f8e_part_{number}.parquet", compression="snappy", row_group_size=10)


def test_files_of_the_exporter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Series of numbers, texts and histograms, parameters, tags, notes and status arrive; files are counted."""
    write_export(tmp_path / "data")
    home = tmp_path / "home"
    done = bring(capsys, home, tmp_path / "data")
    (run,) = done["runs"]
    assert (run["name"], run["values"]) == ("nm", 32)
    assert done["left_out"] == {"fractions of steps, rounded down": 1, "files": 1}
    records = list(read_run(home, run["run"]))
    losses = series(records, "train/loss")
    assert math.isnan(losses.pop(7))
    assert losses == {**{step: step / 4 for step in range(30) if step != 7}, 30: math.inf}
    assert series(records, "bins") == {2: Histogram(7, None, 0.0, 2.0, (1.0,), (3, 4))}
    assert [(each.step, each.body) for each in records if isinstance(each, Log)] == [(1, "hello")]
    events = {each.name: each.attrs for each in records if isinstance(each, Event)}
    start = events["train.run.started"]
    assert start["config"] == {"params/lr": 0.5, "params/depth": 3}
    assert (start["tags"], start["notes"], events["train.run.finished"]) == (["a", "b"], "notes", {"status": "failed"})
    assert bring(capsys, home, tmp_path / "data")["runs"][0]["values"] == 0
    check_finds_differences(home, tmp_path / "data", run["run"])


def test_an_import_of_an_export_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended after each chunk and begun again, inside row groups too, nothing is missing and nothing comes twice."""
    write_export(tmp_path / "data")
    monkeypatch.setattr(source, "CHUNK_RECORDS", 7)
    assert import_in_pieces(tmp_path / "home", NeptuneExport(), tmp_path / "data") > 3
    assert is_same(tmp_path / "home", tmp_path / "data")


def test_other_and_damaged_parquet_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of other tools, empty ones, cut ones and random bytes are counted; those of the exporter arrive."""
    write_export(tmp_path / "data")
    whole = next((tmp_path / "data").rglob("*_part_0.parquet")).read_bytes()
    for name, data in {"cut": whole[:-50], "empty": b"", "random": b"PAR1" + bytes(range(200))}.items():
        (tmp_path / "data" / f"{name}.parquet").write_bytes(data)
    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "data" / "other.parquet")
    parquet.write_table(SCHEMA.empty_table(), tmp_path / "data" / "none.parquet")
    done = bring(capsys, tmp_path / "home", tmp_path / "data")
    assert done["runs"][0]["values"] == 32
    assert done["left_out"]["Parquet files that neptune-exporter did not write"] == 1
    assert done["left_out"]["empty Parquet files"] == 1
    assert sum(reason.startswith(("cut.", "empty.", "random.")) for reason in done["left_out"]) == 3
