"""An import follows growing files, is alone with its run, and finds its position quickly."""

import argparse
import json
import re
from pathlib import Path

import pytest

from stepscope.cli import import_runs
from stepscope.cli.main import main
from stepscope.journal import layout
from stepscope.journal.atomic_files import FileLock
from stepscope.model.records import Event, Metric
from stepscope.testing import read_run
from tests.imports.importing import bring, is_same


def rows(first: int, last: int) -> str:
    """Lines of a table."""
    return "".join(json.dumps({"step": step, "a": step / 4}) + "\n" for step in range(first, last))


def test_follow_takes_what_is_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value comes once, a damaged line is counted once, and a pass without news says nothing."""
    path, home = tmp_path / "a.jsonl", tmp_path / "home"
    path.write_text(rows(0, 3))
    growth = iter([rows(3, 5) + "no JSON\n", "", rows(5, 6)])

    def pause(seconds: float) -> None:
        more = next(growth, None)
        if more is None:
            raise KeyboardInterrupt
        with open(path, "a") as file:
            file.write(more)

    args = argparse.Namespace(path=[path], home=home, check=False, follow=True, json=True, project=None)
    assert import_runs.command(args, pause) == 0
    said = [json.loads(f"{{{each}") for each in re.split(r"^\{", capsys.readouterr().out, flags=re.MULTILINE)[1:]]
    assert [(each["runs"][0]["values"], each["left_out"]) for each in said] == [
        (3, {}),
        (2, {"lines that cannot be read": 1}),
        (1, {}),
    ]
    found = [each for each in read_run(home, said[0]["runs"][0]["run"]) if isinstance(each, Metric)]
    assert [each.step for each in found] == list(range(6))
    assert is_same(home, path)


def test_two_imports_of_a_run_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is refused, since both would write the same values."""
    path, home = tmp_path / "a.jsonl", tmp_path / "home"
    path.write_text(rows(0, 3))
    run = bring(capsys, home, path)["runs"][0]["run"]
    with FileLock(layout.runs_folder(home) / run / "import.lock"):
        assert main(["import", str(path), "--home", str(home)]) == 2
    assert f"another process is importing the run {run}" in capsys.readouterr().err


def test_the_position_is_in_a_small_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pass over files that did not grow reads little, however large the run is."""
    path, home = tmp_path / "a.jsonl", tmp_path / "home"
    path.write_text(rows(0, 5000))
    run = bring(capsys, home, path)["runs"][0]["run"]
    (writer,) = layout.list_writers(home, run)
    assert layout.list_segments(layout.writer_folder(home, run, writer))[-1].stat().st_size < 4096


def test_a_run_without_values_has_its_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MLflow runs with parameters alone are imported; a parameter or a parent that is added later arrives too."""
    folder = tmp_path / "mlruns" / "0" / "abc"
    (folder / "params").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: exp\n")
    (folder / "meta.yaml").write_text("run_id: abc\nstatus: 3\n")
    for name, value in (("lr", "0.5"), ("depth", "3")):
        (folder / "params" / name).write_text(value)
        bring(capsys, tmp_path / "home", tmp_path / "mlruns")
        assert is_same(tmp_path / "home", tmp_path / "mlruns")
    events = [each for each in read_run(tmp_path / "home", "abc") if isinstance(each, Event)]
    first, second = (each for each in events if each.name == "train.run.started")
    assert [each.attrs["config"] for each in (first, second)] == [{"lr": "0.5"}, {"depth": "3", "lr": "0.5"}]
    assert first.time < second.time
    (folder / "tags").mkdir()
    (folder / "tags" / "mlflow.parentRunId").write_text("def")
    assert not is_same(tmp_path / "home", tmp_path / "mlruns")
    bring(capsys, tmp_path / "home", tmp_path / "mlruns")
    assert is_same(tmp_path / "home", tmp_path / "mlruns")
