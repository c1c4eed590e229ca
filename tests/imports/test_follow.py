"""`stepscope import --follow` of files that are being written: by W&B, Trackio and MLflow, and CSV."""

import argparse
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import import_runs
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.records import Event, Metric
from stepscope.testing import read_run
from tests.imports.clients import PYTHON
from tests.imports.importing import is_same, series
from tests.late import late
from tests.waiting import wait_until

mlflow = late("mlflow")
WANDB = """
import sys, wandb
run = wandb.init(project="growing", id="grow", name="named", mode="offline", config={"lr": 1})
print("READY", flush=True)
for part in range(3):
    sys.stdin.readline()
    for step in range(part * 400, part * 400 + 400):
        run.log({"loss": step / 4, "text": "x" * 50})
    print("READY", flush=True)
sys.stdin.readline()
run.finish(exit_code=3)
print("READY", flush=True)
"""
TRACKIO = """
import sys, trackio
trackio.init(project="growing", name="named", config={"lr": 1})
print("READY", flush=True)
for part in range(2):
    sys.stdin.readline()
    for step in range(part * 10, part * 10 + 10):
        trackio.log({"loss": step / 4}, step=step)
    print("READY", flush=True)
sys.stdin.readline()
trackio.finish()
print("READY", flush=True)
"""


def follow(path: Path, home: Path, capsys: pytest.CaptureFixture[str], grow: Sequence[Callable[[], Any]]) -> list[Any]:
    """Follow a path, let it grow between two passes, and return what the command said of each pass with news."""
    growth = iter(grow)

    def pause(seconds: float) -> None:
        more = next(growth, None)
        if more is None:
            raise KeyboardInterrupt
        more()

    capsys.readouterr()
    args = argparse.Namespace(path=[path], home=home, check=False, follow=True, json=True, project=None)
    assert import_runs.command(args, pause) == 0
    return [json.loads(f"{{{each}") for each in re.split(r"^\{", capsys.readouterr().out, flags=re.MULTILINE)[1:]]


def losses(home: Path, run: str) -> dict[int | None, Any]:
    """The values of `loss` by step; each is there once."""
    found = list(read_run(home, run))
    assert sum("loss" in each.values for each in found if isinstance(each, Metric)) == len(series(found, "loss"))
    return series(found, "loss")


@contextmanager
def client(source: str, place: Path, **env: str) -> Iterator[Callable[[], None]]:
    """A program of a foreign client, which goes on to its next READY with each call."""
    if not PYTHON.exists():
        pytest.skip("the clients are not installed (make setup CI=true)")
    known = {"PATH": "/usr/bin:/bin", "HOME": str(place), **env}
    process = subprocess.Popen(
        [PYTHON, "-c", source], cwd=place, env=known, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    reading, writing = process.stdout, process.stdin

    def wait_ready() -> None:
        while "READY" not in (line := reading.readline()):
            assert line, "the program ended"

    def go_on() -> None:
        writing.write("\n")
        writing.flush()
        wait_ready()

    try:
        wait_ready()
        yield go_on
        assert process.wait(300) in (0, 3)
    finally:
        process.kill()
        process.wait()
        reading.close()
        writing.close()


def test_a_wandb_run_in_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that has not begun is waited for; then each value comes once, and at last how the run ended."""
    home, place = tmp_path / "home", tmp_path / "program"
    (place / "wandb").mkdir(parents=True)
    with client(WANDB, place) as go_on:
        (file,) = place.rglob("run-grow.wandb")

        def wait_written() -> None:
            before = file.stat().st_size
            go_on()
            wait_until(lambda: file.stat().st_size > before)

        said = follow(place / "wandb", home, capsys, [wait_written, wait_written, lambda: None, wait_written, go_on])
    said += follow(place / "wandb", home, capsys, [])
    assert {(each["runs"][0]["run"], each["runs"][0]["name"]) for each in said} == {("grow", "named")}
    assert not any("damaged" in reason for each in said for reason in each["left_out"])
    assert losses(home, "grow") == {step: step / 4 for step in range(1200)}
    events = [each for each in read_run(home, "grow") if isinstance(each, Event) and each.name == EVENT_FINISHED]
    assert events[-1].attrs["status"] == "failed"
    assert is_same(home, place / "wandb")


def test_a_block_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """What is appended between two reads continues the block; it was taken for the next, and left out as damaged."""
    from stepscope.dialects.wandb.importer import BLOCK, HEADER, read_records

    with client(WANDB, tmp_path) as go_on:
        for _ in range(4):
            go_on()
    (file,) = tmp_path.rglob("run-grow.wandb")
    whole, growing = file.read_bytes(), tmp_path / "growing.wandb"
    cut = BLOCK * 2 + 5000
    growing.write_bytes(whole[:cut])
    damage: list[str] = []
    found = []
    for after, record in read_records(growing, len(HEADER), lambda reason, count: damage.append(reason)):
        found.append((after, record))
        if growing.stat().st_size < len(whole) and after > BLOCK * 2:
            growing.write_bytes(whole)
    found += read_records(growing, found[-1][0], lambda reason, count: damage.append(reason))
    assert not damage
    assert found == list(read_records(file, len(HEADER), lambda reason, count: None))


def test_a_trackio_database_in_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is still empty is waited for; then each value comes once."""
    home, place, folder = tmp_path / "home", tmp_path / "program", tmp_path / "trackio"
    place.mkdir()
    folder.mkdir()
    with client(TRACKIO, place, TRACKIO_DIR=str(folder)) as go_on:
        said = follow(folder, home, capsys, [go_on, lambda: None, go_on, go_on])
    said += follow(folder, home, capsys, [])
    assert {each["runs"][0]["name"] for each in said} == {"named"}
    assert losses(home, said[0]["runs"][0]["run"]) == {step: step / 4 for step in range(20)}
    assert is_same(home, folder)


def test_a_database_of_mlflow_in_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values, parameters, a second run and the status are followed."""
    home, place = tmp_path / "home", tmp_path / "mlflow.db"
    client = mlflow.MlflowClient(f"sqlite:///{place}")
    experiment = client.create_experiment("growing")
    first, second = (client.create_run(experiment, run_name=name).info.run_id for name in "ab")

    def log(run: str, steps: range) -> None:
        for step in steps:
            client.log_metric(run, "loss", step / 4, step=step)

    def end() -> None:
        client.log_param(first, "lr", "0.1")
        client.set_terminated(first, "FAILED")

    grow = [lambda: log(first, range(3)), lambda: log(second, range(2)), lambda: log(first, range(3, 5)), end]
    said = follow(place, home, capsys, grow)
    counts = [sum(run["values"] for run in each["runs"]) for each in said]
    assert counts == [0, 3, 2, 2, 0]
    assert losses(home, first) == {step: step / 4 for step in range(5)}
    assert losses(home, second) == {0: 0.0, 1: 0.25}
    assert is_same(home, place)


def test_a_table_that_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a line waits for its rest, be it the heading, a number or nothing but a newline."""
    home, path = tmp_path / "home", tmp_path / "a.csv"

    def add(text: str) -> Callable[[], None]:
        def grow() -> None:
            with open(path, "a") as file:
                file.write(text)

        return grow

    add("st")()
    parts = ("ep,lo", "ss\n", "0,1.5\n1,2", ".25\n2,3.5", "", "\n", "3,4\n")
    said = follow(path, home, capsys, [add(text) for text in parts])
    assert [each["runs"][0]["values"] for each in said if each["runs"][0]["values"]] == [1, 1, 1, 1]
    assert losses(home, said[0]["runs"][0]["run"]) == {0: 1.5, 1: 2.25, 2: 3.5, 3: 4}
    assert is_same(home, path)


def test_a_table_that_is_written_anew_with_more_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loggers such as Lightning's write the whole file again when a new metric comes: rows are continued, not bytes."""
    home, path = tmp_path / "home", tmp_path / "a.csv"
    path.write_text("step,loss\n0,1.5\n1,2.5\n")
    again = "step,loss,accuracy\n0,1.5,\n1,2.5,\n2,3.5,0.5\n"
    said = follow(path, home, capsys, [lambda: path.write_text(again), lambda: path.write_text(again + "3,4.5,0.75\n")])
    assert [each["runs"][0]["values"] for each in said] == [2, 2, 2]
    run = said[0]["runs"][0]["run"]
    assert losses(home, run) == {0: 1.5, 1: 2.5, 2: 3.5, 3: 4.5}
    assert series(read_run(home, run), "accuracy") == {2: 0.5, 3: 0.75}
    assert is_same(home, path)
