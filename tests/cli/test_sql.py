"""`stepscope sql`: rows, tables, CSV and JSON, through a hub and without one."""

import csv
import io
import json
from pathlib import Path

import pytest

from stepscope.cli.main import main
from tests.cli.journals import finished, metric, write
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]


def test_rows_through_a_hub(
    start_hub: StartHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with aligned columns, CSV, JSON, a limit that is said, and a statement from standard input."""
    hub = start_hub()
    write(hub.home, "R", [*(metric(n, loss=float(n)) for n in range(5)), finished()])
    hub.wait_stored("folder", 6)
    home = ["--home", str(hub.home)]
    select = "SELECT step, toString(step) AS word FROM metrics WHERE step < 3 ORDER BY step"
    assert main(["sql", select, *home]) == 0
    assert capsys.readouterr().out.splitlines() == ["step  word", *(f"{n:>4}  {n}" for n in range(3))]
    assert main(["sql", select, "--csv", *home]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:] == [["0", "0"], ["1", "1"], ["2", "2"]]
    monkeypatch.setattr("sys.stdin", io.StringIO(select))
    assert main(["sql", "-", "--rows", "2", "--json", *home]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert ([[int(number), word] for number, word in answer["rows"]], answer["more"]) == ([[0, "0"], [1, "1"]], True)
    assert "only 2 rows are shown" in said.err
    assert main(["sql", "SELECT id FROM runs WHERE id = 'none'", *home]) == 0
    assert capsys.readouterr().out == "no rows\n"


def test_what_is_refused(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but a SELECT passes, and an empty statement is not sent."""
    home = ["--home", str(start_hub().home)]
    assert main(["sql", "DROP TABLE metrics", *home]) == 2
    assert "SELECT" in capsys.readouterr().err
    assert main(["sql", " ", *home]) == 2
    assert "the statement is empty" in capsys.readouterr().err


def test_without_a_hub_the_engine_of_the_home_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The journals are stored first; without a statement the tables are listed."""
    write(tmp_path, "R", [*(metric(n, loss=float(n)) for n in range(5)), finished()])
    assert main(["sql", "SELECT max(value) AS top FROM metrics", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["top", "  4"]
    assert main(["sql", "--json", "--home", str(tmp_path)]) == 0
    tables = {each["name"]: each["rows"] for each in json.loads(capsys.readouterr().out)}
    assert tables["metrics"] == 5
    assert main(["sql", "--home", str(tmp_path)]) == 0
    assert "metrics  5 rows  Every value" in capsys.readouterr().out
