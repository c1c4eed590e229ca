"""`stepscope tail` on real journals, also while they grow."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from stepscope.cli.main import main
from stepscope.cli.tail import Follower
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Span
from tests.cli.journals import SECOND, START, alert, event, log, metric, span, write


def tail(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    """Run the command and return its lines."""
    assert main(["tail", "R", "--home", str(home), *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_last_records_of_all_ranks_by_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks are interleaved as they happened."""
    write(tmp_path, "R", [metric(n, loss=1.0) for n in (1, 3, 5)])
    write(tmp_path, "R", [metric(n, loss=2.0) for n in (2, 4)], rank=1)
    lines = tail(tmp_path, capsys, "-n", "3")
    assert [line.split()[1:4] for line in lines] == [["r0", "step", "3"], ["r1", "step", "4"], ["r0", "step", "5"]]


def test_each_kind_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What happened is in the line; line ends and escape sequences are not."""
    failed = Span(START, 3_000_000, 1, None, b"t" * 16, b"s" * 8, None, "train.step", 0, 2, "boom")
    write(tmp_path, "R", [metric(1, loss=0.5, lr=1e-4), failed, span("hung", 2, None)])
    write(tmp_path, "R", [log("two\nlines \x1b[31m"), event("milestone", n=3), alert("nan", "bad")], rank=1)
    out = "\n".join(line[13:] for line in tail(tmp_path, capsys))
    for expected in (
        "r0 step 1       metric trainer/loss=0.5 trainer/lr=1e-4",
        "r0 step 1       span   train.step 3 ms ERROR boom",
        "r0              span   hung open",
        "r1              log    WARN two⏎lines \ufffd[31m",
        "r1              event  INFO milestone n=3",
        "r1              alert  ERROR nan: bad",
    ):
        assert expected in out


def test_a_span_stands_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A long span is recorded at its end, though it began before everything in it."""
    write(tmp_path, "R", [metric(1, loss=1.0), metric(5, loss=1.0), span("run", 1, 9 * SECOND)])
    assert "run 9 s" in tail(tmp_path, capsys)[-1]


@pytest.mark.parametrize("kind", ["metric", "alert"])
def test_one_kind_across_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """The requested number of records is found, also in older segments."""
    rare = [[alert("nan"), alert("inf")]] + [[metric(n, loss=1.0)] for n in range(200)]
    write(tmp_path, "R", *rare, segment_bytes=500)
    lines = tail(tmp_path, capsys, "--kind", kind, "-n", "2")
    assert [line.split()[-1] for line in lines] == (["nan", "inf"] if kind == "alert" else ["trainer/loss=1"] * 2)
    assert len(tail(tmp_path, capsys, "-n", "1000")) == 202


def test_json_is_one_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every field of the record, who wrote it, ids as hex, NaN as a word."""
    write(tmp_path, "R", [metric(1, loss=float("nan")), span("s", 10, 5)], rank=3, attempt=2)
    first, second = (json.loads(line) for line in tail(tmp_path, capsys, "--json"))
    assert (first["kind"], first["rank"], first["attempt"], first["step"]) == ("span", 3, 2, None)
    assert first["span_id"] == "000000000000000a"
    assert second["values"] == {"loss": "NaN"}


def test_none_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """-n 0 prints nothing of the past."""
    write(tmp_path, "R", [metric(1, loss=1.0)])
    assert tail(tmp_path, capsys, "-n", "0") == []


def test_following_sees_new_records_new_segments_and_new_writers_once(tmp_path: Path) -> None:
    """Nothing is shown twice and nothing is missed."""
    who = Writer(id="r0-a1-h-1-abc", run="R", project="p")
    journal = Journal(tmp_path / "runs" / "R" / who.id, who, segment_bytes=300)

    def put(step: int) -> None:
        journal.append([msgspec.msgpack.encode(metric(step, loss=1.0))])

    put(1)
    follower = Follower(tmp_path, "R", "metric")
    assert [record.step for _, record in follower.last(5)] == [1]
    assert follower.read() == []
    for step in range(2, 20):
        put(step)
    write(tmp_path, "R", [metric(20, loss=1.0)], rank=1)
    assert [record.step for _, record in follower.read()] == list(range(2, 21))
    assert follower.read() == []
    journal.close()


def test_follow_in_a_real_process_until_ctrl_c(tmp_path: Path) -> None:
    """Records are printed as they are written, and Ctrl-C ends the command silently."""
    who = Writer(id="r0-a1-h-1-abc", run="R", project="p")
    journal = Journal(tmp_path / "runs" / "R" / who.id, who)
    journal.append([msgspec.msgpack.encode(Metric(START, 1, None, None, {"x": 1}))])
    command = [sys.executable, "-m", "stepscope", "tail", "R", "--follow", "--json", "--home", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["step"] == 1
    journal.append([msgspec.msgpack.encode(Metric(START, 2, None, None, {"x": 1}))])
    assert json.loads(process.stdout.readline())["step"] == 2
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "", "")


def environment() -> dict[str, str]:
    """The environment of a child that finds this package."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
