"""`stepscope samples`: rows at a step and rows with a text, for people and for programs."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from stepscope.cli.main import main
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Log
from tests.cli.journals import START, finished, metric, write


def row(step: int, table: str = "samples", **cells: object) -> Log:
    """A row of a table."""
    return Log(START + step, step, None, None, None, 9, table, cells, SCOPE_SAMPLES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a run that logged samples, and one without."""
    rows = [row(step, prompt=f"question {step}", completion="a\nb\x1b[31m", reward=step / 10) for step in range(5)]
    write(tmp_path, "R", [metric(0, loss=1.0), *rows, row(4, "eval", text="other"), finished()])
    write(tmp_path, "S", [metric(0, loss=1.0), finished()])
    return tmp_path


def test_rows_of_a_step(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last step is printed, or the one that is named; what a text holds cannot drive a terminal."""
    assert main(["samples", "R", "--home", str(home)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:5] == [
        "samples of R at step 4",
        "tables: eval (1 row), samples (5 rows)",
        "",
        "step 4, rank 0",
        "  prompt: question 4",
    ]
    assert "\x1b" not in out
    assert main(["samples", "R", "--step", "2", "--home", str(home)]) == 0
    assert "question 2" in capsys.readouterr().out
    assert main(["samples", "R", "--table", "eval", "--home", str(home)]) == 0
    assert "text: other" in capsys.readouterr().out


def test_search_and_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--grep` finds rows at all steps, newest first; `--json` prints the answer of the API."""
    assert main(["samples", "R", "--grep", "QUESTION", "--limit", "2", "--json", "--home", str(home)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["step"] for each in answer["rows"]] == [4, 3]
    assert main(["samples", "R", "--grep", "nowhere", "--home", str(home)]) == 0
    assert "no rows match" in capsys.readouterr().out


def test_a_run_without_samples_and_a_wrong_table(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence says how to record some, or which tables there are."""
    assert main(["samples", "S", "--home", str(home)]) == 0
    assert "run.sample(" in capsys.readouterr().out
    assert main(["samples", "R", "--table", "no", "--home", str(home)]) == 2
    assert "there are: eval, samples" in capsys.readouterr().err
