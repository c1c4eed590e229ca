"""`stepscope runs` with a filter, an order and columns, through a hub and without one."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.main import main
from stepscope.model.names import EVENT_STARTED
from tests.cli.journals import SECOND, START, event, finished, later, metric, write
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]


def sweep(home: Path) -> int:
    """Write three runs of a sweep, and return how many records they have."""
    for number, (lr, losses) in enumerate(((0.1, (3.0, 1.0, 2.0)), (0.01, (3.0, 2.5, 2.4)), (0.3, (3.0, 9.0, 9.0)))):
        start = event(EVENT_STARTED, config={"lr": lr, "model": {"depth": number}}, tags={"team": "red"})
        points = [metric(step, loss=loss, accuracy=1 / loss) for step, loss in enumerate(losses)]
        status = "failed" if number == 2 else "finished"
        write(
            *(home, f"R{number}", later([start, *points, finished(status)], 100 * number)),
            name=f"lr {lr}", wall_ns=START + 100 * number * SECOND, token=f"abc{number}",
        )  # fmt: skip
    return 15


def printed(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    """The lines of the command."""
    capsys.readouterr()
    assert main(["runs", "--home", str(home), *options]) == 0
    return capsys.readouterr().out.splitlines()


def ids(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[Any]:
    """The runs that the command lists."""
    return [row["run"] for row in json.loads("\n".join(printed(home, capsys, "--json", *options)))]


def test_through_a_hub(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """The filter, the order and the reducers are those of the API; a bare name is a metric."""
    hub = start_hub()
    hub.wait_stored("folder", sweep(hub.home))
    home = hub.home
    assert ids(home, capsys, "status = finished") == ["R1", "R0"]
    assert ids(home, capsys, "config.lr", "in", "(0.1, 0.3)") == ["R2", "R0"]
    assert ids(home, capsys, "min.loss < 2") == ["R0"]
    assert ids(home, capsys, "--sort", "loss") == ["R0", "R1", "R2"]
    assert ids(home, capsys, "--sort", "best.accuracy", "-r") == ["R0", "R1", "R2"]
    assert ids(home, capsys, "--sort=-config.model.depth", "-n", "2") == ["R2", "R1"]
    assert ids(home, capsys, "--reverse") == ["R0", "R1", "R2"]
    (row, *_) = json.loads("\n".join(printed(home, capsys, "--json", "R0", "-c", "loss,best.loss", "-c", "config.lr")))
    assert row["columns"] == {"metrics.loss": 2.0, "best.loss": 1.0, "config.lr": 0.1}
    of_points = "last2.loss,accuracy@best.loss,loss@max.loss"
    assert ids(home, capsys, "--sort", "last2.loss") == ["R0", "R1", "R2"]
    assert ids(home, capsys, "metrics.accuracy@best.loss > 0.41 and last2.loss < 3", "--sort=-last2.loss") == [
        "R1",
        "R0",
    ]
    (row,) = json.loads("\n".join(printed(home, capsys, "--json", "R0", "-c", of_points)))
    assert row["columns"] == {"last2.loss": 1.5, "metrics.accuracy@best.loss": 1.0, "metrics.loss@max.loss": 3.0}
    assert printed(home, capsys, "R0", "-c", of_points)[1].split()[-3:] == ["1.5", "1", "3"]
    head, *lines = printed(
        home, capsys, "--sort", "min.loss", "-c", "loss,min.loss,max.loss,config.model.depth,tag.team"
    )
    assert head.split() == [
        "RUN",
        "PROJECT/NAME",
        "STATUS",
        "loss",
        "min.loss",
        "max.loss",
        "config.model.depth",
        "tag.team",
    ]
    assert [line.split()[-5:] for line in lines] == [
        ["2", "1", "3", "0", "red"],
        ["2.4", "2.4", "3", "1", "red"],
        ["9", "3", "9", "2", "red"],
    ]
    assert printed(home, capsys, "-n", "1", "team")[-1] == "1 of 3 runs shown; -n 3 shows all"
    assert printed(home, capsys, "nothing of the kind")[0].startswith("no run matches, of 3 in")


def test_mistakes_have_hints(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """A field that no run has is an error in a filter, and a remark as a column; both name the nearest."""
    hub = start_hub()
    hub.wait_stored("folder", sweep(hub.home))
    assert main(["runs", "--home", str(hub.home), "metrics.los < 2"]) == 2
    assert "did you mean metrics.loss" in capsys.readouterr().err
    assert main(["runs", "--home", str(hub.home), "-c", "config.lrr"]) == 0
    assert "no run listed has config.lrr; did you mean config.lr?" in capsys.readouterr().err


def test_without_a_hub_the_same_engine_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The journals are read into the home's store, and asked there."""
    sweep(tmp_path)
    assert ids(tmp_path, capsys, "max.loss > 3") == ["R2"]


def test_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each group, with the mean and the spread of each column, sorted by the mean."""
    sweep(tmp_path)
    assert printed(tmp_path, capsys, "--group", "status", "-c", "loss,min.loss,duration", "--sort", "loss") == [
        "status    RUNS          loss      min.loss   duration",
        "finished     2  2.2 ± 0.2828  1.7 ± 0.9899  2 s ± 0 s",
        "failed       1             9             3        2 s",
    ]
    head, *lines = printed(tmp_path, capsys, "--group", "config.lr", "--sort=-loss", "-n", "2")
    assert head.split()[:2] == ["config.lr", "RUNS"]
    assert "trainer/loss" in head
    assert [line.split()[:2] for line in lines[:2]] == [["0.3", "1"], ["0.01", "1"]]
    assert lines[-1] == "2 of 3 groups shown"
    (group,) = json.loads("\n".join(printed(tmp_path, capsys, "--json", "--group", "tag.team", "-c", "best.accuracy")))
    assert (group["shared"], group["runs"], group["columns"]["best.accuracy"]["max"]) == ("red", 3, 1.0)
    assert printed(tmp_path, capsys, "--group", "status", "nothing-like-that") == ["no run matches, of 3"]
