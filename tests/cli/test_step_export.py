"""`stepscope step` and `export`, and `stepscope.read`: of journals alone, and through a hub that runs."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from msgspec import structs

from stepscope import StepscopeError, read
from stepscope.cli.step import open_spans
from stepscope.hub.home_store import opened
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.model.records import Histogram, Metric
from tests.cli.journals import alert, log, metric, span, write
from tests.forked import stepscope
from tests.hub.conftest import RunningHub

PROGRAM = """
import stepscope
run = stepscope.init(project="p", name="short", config={"lr": 0.1})
for i in range(60):
    with run.step(i):
        with run.span("forward"):
            loss = 9.0 if i == 55 else 1.0 + (i % 5) / 10
        run.log({"loss": loss}, category="trainer")
run.alert("spike", "loss jumped")
run.finish()
"""
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(home: Path, python: Any) -> Cli:
    """Run a command on the home of a run that has ended."""
    assert python(PROGRAM).returncode == 0

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return stepscope(*arguments, "--home", home)

    return run


def check_all(cli: Cli, home: Path, tmp_path: Path) -> None:
    """The commands and `read` agree on what was recorded."""
    shown = cli("step", "latest", "55")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"trainer/loss +0 +9 +1\.2 +7\.8 .*!", shown.stdout)
    assert re.search(r"^  forward ", shown.stdout, re.MULTILINE)
    view = json.loads(cli("step", "short", "55", "--json").stdout)
    assert (view["previous"], view["next"], view["step"]) == (54, 56, 55)
    target = tmp_path / "copy.csv"
    done = cli("export", "latest", "-o", str(target), "--key", "trainer/loss")
    assert done.returncode == 0, done.stderr
    assert len(target.read_text().splitlines()) == 61
    assert cli("export", "latest", "-o", str(tmp_path / "copy.xls")).returncode == 2
    assert cli("step", "nobody", "1").returncode == 2
    absent = cli("step", "latest", "55", "--rank", "7")
    assert (absent.returncode, "no records of rank 7; it has records of 1 rank" in absent.stderr) == (2, True)
    unknown = cli("export", "latest", "-o", str(target), "--key", "trainer/los")
    assert "no metric 'trainer/los'; did you mean trainer/loss?" in unknown.stderr
    assert (unknown.returncode, len(target.read_text().splitlines())) == (2, 61)
    table = read("e2e", keys=["trainer/loss"], home=home)
    assert table.column("value").to_pylist()[55] == 9.0
    for meant in ("latest", "short", "e2"):
        assert read(meant, keys="trainer/loss", home=home).equals(table)
    assert read("e2e", keys="train/loss", home=home).equals(table)
    with pytest.raises(StepscopeError, match=r"e2e has no metric 'trainer/lss'; did you mean trainer/loss\?"):
        read("e2e", keys=["trainer/loss", "trainer/lss"], home=home)
    with pytest.raises(StepscopeError, match=r"no run 'shrt' in .*; closest matches:\n  e2e  short"):
        read("shrt", home=home)


def test_without_a_hub(cli: Cli, home: Path, tmp_path: Path) -> None:
    """The engine is started in the process and reads the journals."""
    check_all(cli, home, tmp_path)


def test_where_the_copy_goes(cli: Cli, tmp_path: Path) -> None:
    """A link is followed, and a pipe is written to, not replaced."""
    target, link, pipe = tmp_path / "target.csv", tmp_path / "link.csv", tmp_path / "pipe.csv"
    target.write_text("old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    assert cli("export", "latest", "-o", str(link), "--key", "trainer/loss").returncode == 0
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 61
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(pipe.read_text)
        assert cli("export", "latest", "-o", str(pipe), "--key", "trainer/loss").returncode == 0
        assert got.result(30) == target.read_text()
    assert pipe.is_fifo()


def test_with_a_hub(cli: Cli, home: Path, tmp_path: Path, until: Callable[..., None]) -> None:
    """The hub that has the home folder open is asked."""
    hub = RunningHub(home).start()
    try:
        until(lambda: '"step": 59' in cli("step", "latest", "59", "--json").stdout)
        check_all(cli, home, tmp_path)
        (home / "runs" / "e2e").rename(tmp_path / "moved")
        assert "e2e" in cli("runs").stdout
        assert json.loads(cli("show", "e2e", "--json").stdout)["config"] == {"lr": 0.1}
        assert "trainer/loss" in cli("show", "short").stdout
    finally:
        assert hub.stop() == 0


def test_the_attempt_that_is_named(tmp_path: Path) -> None:
    """Its values, spans, logs and alerts alone; an attempt that did not reach the step is refused by name."""
    for attempt in (1, 2):
        line = msgspec.structs.replace(log(f"said by attempt {attempt}"), step=5)
        records = [metric(step, loss=float(attempt)) for step in range(3 + attempt, 7)]
        records += [span(f"work{attempt}", attempt, 10**6, step=5), line, alert(f"alert{attempt}", step=5)]
        write(tmp_path, "R", records, attempt=attempt, token=f"a{attempt}")

    first = stepscope("step", "R", "5", "--attempt", "1", "--home", tmp_path)
    assert first.returncode == 0, first.stderr
    assert re.search(r"trainer/loss +0 +1 ", first.stdout)
    assert "this is attempt 1; the step was done in 2 too: --attempt 2" in first.stdout
    for word in ("work", "alert", "said by attempt "):
        assert f"{word}1" in first.stdout
        assert f"{word}2" not in first.stdout
    refused = stepscope("step", "R", "4", "--attempt", "2", "--home", tmp_path)
    assert refused.returncode == 2
    assert "attempt 2 did not reach step 4; attempt 1 did" in refused.stderr


def test_a_rank_alone_and_the_next_trouble(tmp_path: Path) -> None:
    """`--rank` shows only that rank; a spike is a finding, as on the page."""
    for rank in (0, 1):
        values = [metric(step, loss=50.0 if step == 40 else 1.0, held_bytes=3.0e9 + rank) for step in range(60)]
        line = msgspec.structs.replace(log(f"said by rank {rank}"), step=20)
        write(tmp_path, "R", [*values, line], rank=rank, name="named", token=f"a{rank}")

    def step(*arguments: str) -> str:
        done = stepscope("step", "R", *arguments, "--home", tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    both = step("20")
    assert both.startswith("named (R)  step 20")
    assert "next anomaly at 40 (spike)" in both
    assert "previous anomaly at 40 (spike)" in step("50")
    assert re.search(r"held_bytes +0 +3 GB", both)
    alone = json.loads(step("20", "--rank", "1", "--json"))
    assert {value["rank"] for each in alone["metrics"] for value in each["values"]} == {1}
    assert [each["body"] for each in alone["logs"]] == ["said by rank 1"]
    shown = step("20", "--rank", "1")
    assert re.search(r"trainer/loss +1 ", shown)
    assert not re.search(r"trainer/loss +0 ", shown)


def test_of_many_ranks_a_page_is_shown(tmp_path: Path) -> None:
    """The text has the 16 oddest and slowest ranks of 20 and says so; another one is shown by its number."""
    for rank in range(20):
        values = [metric(step, loss=1.0) for step in range(3)]
        write(tmp_path, "R", values, rank=rank, world_size=20, token=f"a{rank}")
    shown = stepscope("step", "R", "1", "--home", tmp_path).stdout
    assert len(re.findall(r"trainer/loss +\d+ ", shown)) == 16
    assert "16 of 20 ranks, the odd and the slow ones first: --rank R shows another" in shown
    assert re.search(r"trainer/loss +19 ", stepscope("step", "R", "1", "--rank", "19", "--home", tmp_path).stdout)


def test_histograms_are_copied(tmp_path: Path) -> None:
    """`read` and `export` return histograms with bounds and counts as lists, separate from points."""
    spread = Histogram(3, 6.0, 1.0, 3.0, (2.0,), (2, 1))
    records = [Metric(1_700_000_000_000_000_000 + step, step, None, None, {"weights": spread}) for step in (1, 2)]
    write(tmp_path, "R", [*records, metric(3, loss=0.5)])
    table = read("R", what="histograms", home=tmp_path)
    assert table.select(["key", "step", "count", "sum", "counts"]).to_pylist() == [
        {"key": "weights", "step": step, "count": 3, "sum": 6.0, "counts": [2, 1]} for step in (1, 2)
    ]
    assert read("R", home=tmp_path)["key"].to_pylist() == ["trainer/loss"]
    done = stepscope("export", "R", "--what", "histograms", "-o", "-", "--format", "jsonl", "--home", tmp_path)
    assert [json.loads(row)["bounds"] for row in done.stdout.splitlines()] == [[2.0], [2.0]]


def test_only_the_run_that_is_asked_for_is_read(tmp_path: Path) -> None:
    """Without a hub, the journals of other runs stay unread: a home may have many."""
    for run in ("one", "two"):
        write(tmp_path, run, [metric(1, loss=1.0)])
    done = stepscope("step", "one", "1", "--json", "--home", tmp_path)
    assert json.loads(done.stdout)["run"] == "one"
    with opened(tmp_path) as store:
        assert [row.id for row in list_runs(store.engine)] == ["one"]


def test_a_step_takes_as_long_as_its_longest_rank(tmp_path: Path) -> None:
    """Clocks of two machines that are half a minute apart do not make a step half a minute long."""
    late = 37_000_000_000
    for rank in range(2):
        spans = [structs.replace(span("train.step", 10 * step + rank, 200_000_000, step)) for step in range(3)]
        shifted = [structs.replace(each, time=each.time + late * rank) for each in spans]
        write(tmp_path, "R", shifted, rank=rank, world_size=2)
    done = stepscope("step", "R", "1", "--json", "--home", tmp_path)
    assert json.loads(done.stdout)["duration_ms"] == 200.0


def test_every_open_span_is_told_with_its_ranks() -> None:
    """Open spans of the same name are on one line, for any number of ranks."""
    spans = [{"name": "all_reduce", "rank": rank} for rank in range(12)] + [{"name": "save", "rank": 3}]
    assert list(open_spans(spans)) == ["all_reduce on ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11", "save on rank 3"]
