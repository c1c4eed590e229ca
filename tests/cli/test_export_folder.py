"""`stepscope export --parquet FOLDER`: files by project and week that other engines read, whole, only what is new."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.export_folder import STATE, week_of
from stepscope.cli.main import main
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.journal import atomic_files
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Histogram, Instrument, Log, Metric, Record, Span

NOVEMBER = 1_794_700_000_000_000_000
"""A time in week 46 of 2026."""
DAY = 86_400_000_000_000


def _write(home: Path, batches: list[Batch]) -> None:
    pytest.importorskip("tests.chdb")
    place = HubHome(home)
    store = open_home_store(place)
    assert store.write_many(batches) == [None] * len(batches)
    store.close()
    place.close()


def _batch(run: str, project: str, start: int, seq: int = 0) -> Batch:
    writer = Writer(id="w", run=run, project=project, wall_ns=start)
    records: list[Record] = [Metric(start + step, step, None, "trainer", {"loss": 0.5 * step}) for step in range(10)]
    if run == "full":
        distribution = Histogram(6, None, -1.0, None, (0.5, 1.0), (1, 2, 3))
        records += [
            Metric(start, 1, None, "system", {"h": distribution}, {}, Instrument("histogram")),
            Span(start, 5, 1, None, b"t" * 16, b"s" * 8, None, "work"),
            Log(start, 1, None, None, None, 9, "line"),
            Alert(start, 2, None, None, None, 21, "nan", "loss is NaN"),
        ]
    return Batch(writer, seq, records)


def _export(home: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["export", "--home", str(home), "--json", "--parquet", str(folder)]) == 0
    return json.loads(capsys.readouterr().out)


def test_weeks() -> None:
    """Weeks are those of ISO 8601: the first days of a year may be in the last week of the one before."""
    assert week_of(1_794_700_000) == "2026-W46"
    assert week_of(1_609_459_200) == "2020-W53"


def test_other_engines_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Project and week are partitions, the run is a column, and nothing is there of kinds that a run does not have."""
    dataset = pytest.importorskip("pyarrow.dataset")
    home, folder = tmp_path / "home", tmp_path / "out"
    odd = "a/b c=d%"
    _write(
        home, [_batch("full", odd, NOVEMBER), _batch("r/2", "gpt", NOVEMBER), _batch("old", "gpt", NOVEMBER - 70 * DAY)]
    )
    done = _export(home, folder, capsys)
    assert (done["runs"], done["written"], done["files"]) == (3, 3, 7)
    points = dataset.dataset(folder / "metrics", partitioning="hive").to_table().to_pydict()
    assert len(points["value"]) == 30
    assert set(zip(points["project"], points["week"], points["run"], strict=True)) == {
        (odd, "2026-W46", "full"),
        ("gpt", "2026-W46", "r/2"),
        ("gpt", "2026-W36", "old"),
    }
    for kind in ("histograms", "spans", "logs", "alerts"):
        rows = dataset.dataset(folder / kind, partitioning="hive").to_table().to_pydict()
        assert (rows["run"], rows["project"]) == (["full"], [odd]), kind
    assert not (folder / "exemplars").exists() or not list((folder / "exemplars").rglob("*.parquet"))


def test_repeated_it_writes_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that has changed is written again, the others are left alone."""
    pytest.importorskip("pyarrow")
    home, folder = tmp_path / "home", tmp_path / "out"
    _write(home, [_batch("a", "p", NOVEMBER), _batch("b", "p", NOVEMBER)])
    _export(home, folder, capsys)
    (path,) = folder.rglob("a.parquet")
    before = path.stat().st_mtime_ns
    assert _export(home, folder, capsys)["written"] == 0
    _write(home, [_batch("b", "p", NOVEMBER, seq=1)])
    assert _export(home, folder, capsys)["written"] == 1
    assert path.stat().st_mtime_ns == before


def test_interrupted_it_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half file is left, and what was complete is not written again."""
    pytest.importorskip("pyarrow")
    home, folder = tmp_path / "home", tmp_path / "out"
    _write(home, [_batch(run, "p", NOVEMBER) for run in "abc"])
    replace, calls = atomic_files.replace_file, []

    def interrupt(path: Path, data: bytes, **given: Any) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(path, data, **given)

    monkeypatch.setattr(atomic_files, "replace_file", interrupt)
    assert main(["export", "--home", str(home), "--parquet", str(folder)]) != 0
    monkeypatch.undo()
    capsys.readouterr()
    assert _export(home, folder, capsys)["written"] == 2
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".parquet", Path(STATE).suffix}


def test_a_folder_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it is touched; so are options that make no sense together."""
    (tmp_path / "mine").write_text("")
    home = tmp_path / "home"
    _write(home, [_batch("a", "p", NOVEMBER)])
    assert main(["export", "--home", str(home), "--parquet", str(tmp_path)]) == 2
    assert "is not an export folder" in capsys.readouterr().err
    assert main(["export", "--home", str(home), "a", "--parquet", str(tmp_path / "out")]) == 2
    assert "leave out RUN" in capsys.readouterr().err
    assert main(["export", "--home", str(home), "-o", "x.csv"]) == 2
    assert "name the run" in capsys.readouterr().err
