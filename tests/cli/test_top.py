"""`stepscope top`: one frame from journals alone, and a live one on a real terminal that ends with `q`."""

import contextlib
import fcntl
import json
import math
import os
import pty
import random
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("rich", reason="top draws with rich")

from stepscope.cli import stored_run
from stepscope.cli.main import main
from stepscope.cli.watching.charts import chart
from stepscope.cli.watching.screen import View, frame
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.journal.key_trend import MOST, KeyTrend
from stepscope.journal.segments import Tail
from stepscope.journal.watched import Watched
from stepscope.model.ports import Writer
from tests.cli.journals import SECOND, START, alert, event, finished, log, metric, span, write
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]

RANK_0 = Writer(id="r0", run="run", project="gpt")
HIGHEST_DOTS = set("⠁⠈⠉⡇⢸⣿⠃⠘⠛⠇⠸⠿⡏⢹⣇⣸⡟⢻⡆⢰⠋⠙⠏⠹⠟⠻")


def course(values: list[float]) -> KeyTrend:
    """A metric with one value for each step."""
    made = KeyTrend("trainer/loss")
    for step, value in enumerate(values):
        made.add(RANK_0, step, step, value)
    return made


@pytest.mark.parametrize("at", [0, 1, 77_777, 99_999])
def test_one_spike_among_many_points_is_drawn(at: int) -> None:
    """However many points share a column, the top row has a dot and nothing is lost."""
    values = [1.0] * 100_000
    values[at] = 50.0
    made = course(values)
    lines = chart(made, 38, 4)
    assert "1..50" in lines[0]
    assert sum(cell in HIGHEST_DOTS for cell in lines[1]) in (1, 2)
    assert all(len(line) == 38 for line in lines[1:])
    assert sum(part.good for part in made.drawn().values()) == 100_000


def test_bytes_are_scaled() -> None:
    """What is counted in bytes is written as on the page."""
    made = KeyTrend("system/memory_used_bytes")
    for step, value in enumerate((7.5e9, 16.0e9)):
        made.add(RANK_0, step, step, value)
    assert "16 GB" in chart(made, 60, 3)[0]
    assert "7.5 GB..16 GB" in chart(made, 60, 3)[0]


def test_numbers_that_are_none_are_marked() -> None:
    """Non-finite values are marked with their count and the position of the first."""
    values = [1.0] * 1000
    values[500] = values[501] = math.nan
    made = course(values)
    lines = chart(made, 40, 3)
    assert lines[0].endswith("!2")
    assert lines[1].index("!") in (19, 20)
    assert [part.first for part in made.drawn().values() if part.bad] == [500]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([1.7e308, -1.7e308] * 10, (0, 1)),
        ([5e-324, 0.0] * 10, (0, 1)),
        ([5e-324, 1.5e-323] * 10, (0, 1)),
        ([5e-324, 1.7e308], (0, 1)),
        ([1.7e308] * 5, (0,)),
        ([-0.0] * 5, (0,)),
        ([1.0], (0,)),
        ([math.nan] * 4, ()),
        ([math.inf, -math.inf], ()),
        ([], ()),
    ],
)
def test_any_numbers_can_be_drawn(values: list[float], rows: tuple[int, ...], log: bool) -> None:
    """The farthest and the nearest there are reach from the bottom to the top; what never changes is in the middle."""
    lines = chart(course(values), 30, 2, log=log)[1:]
    assert tuple(at for at, line in enumerate(lines) if line.strip(" !")) == rows


def test_memory_is_bounded_whatever_the_steps() -> None:
    """Steps in any order, far apart and negative, stay within the stretches there may be."""
    made, draw, ranks = KeyTrend("k"), random.Random(1), [RANK_0, Writer(id="r1", run="run", project="gpt", rank=1)]
    steps = [draw.randrange(-(10**6), 10**6) for _ in range(20_000)]
    for step in steps:
        made.add(draw.choice(ranks), step, 0, float(step))
    parts = made.drawn()
    assert len(parts) <= MOST
    assert sum(part.good for part in parts.values()) == 20_000
    assert min(part.low for part in parts.values()) == min(steps)
    assert max(part.high for part in parts.values()) == max(steps)


def two_ranks(home: Path, *ended: int) -> Path:
    """A home with a run that crashed once and has a spike and a NaN; some ranks of its second attempt ended."""
    draw = random.Random(2)
    for attempt, steps in ((1, range(60)), (2, range(50, 120))):
        for rank in range(2):
            values = [9.0 if (step, rank) == (80, 1) else 1 + draw.random() / 10 for step in steps]
            if attempt == 2 and rank == 0:
                values[-10] = math.nan
            records = [event("train.run.started", config={"lr": 0.1})]
            records += [metric(step, loss=value) for step, value in zip(steps, values, strict=True)]
            records += [log("saved \x1b[31m a checkpoint"), alert("spike", "loss jumped", 80)]
            records += [span("train.evaluate", 7 + rank, None, step=119)]
            records += [finished()] if attempt == 2 and rank in ended else []
            who = {"rank": rank, "attempt": attempt, "world_size": 2, "name": "base", "token": f"a{attempt}"}
            write(home, "R", records, **who)
    return home


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A home with such a run, of which one rank is still running."""
    return two_ranks(tmp_path, 0)


def test_a_frame_fits_any_terminal(run: Path) -> None:
    """As many lines as there are rows, none wider than the columns, down to 80 by 24 and less."""
    watched = Watched(run, "R")
    while watched.read():
        pass
    for columns, rows in ((80, 24), (40, 10), (200, 60), (100, 12)):
        lines = frame(watched, "running", [], View(), columns, rows)
        assert len(lines) == rows
        assert max(len(line.text) for line in lines) <= columns
        assert "gpt/base" in lines[0].text
        assert not any("\x1b" in line.text for line in lines)


def test_once_prints_one_frame_with_what_went_wrong(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a hub, without a terminal: the same findings as the hub has, from the journals."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    assert main(["top", "base", "--once", "--home", str(run)]) == 0
    out = capsys.readouterr().out
    assert "! trainer/loss became NaN at step 110 on rank 0" in out
    assert "! trainer/loss spiked to 9 at step 80" in out
    assert "died without an exit record at step" in out
    assert "alert spike: loss jumped at step 80 on ranks 0, 1" in out
    assert "open train.evaluate r1" in out
    assert "saved" in out
    assert "\x1b" not in out


def test_a_frame_on_no_terminal_is_as_wide_and_high_as_told(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """COLUMNS and LINES count where there is no terminal to ask."""
    monkeypatch.setenv("COLUMNS", "64")
    monkeypatch.setenv("LINES", "20")
    assert main(["top", "base", "--once", "--home", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), max(map(len, lines))) == (20, 64)


def test_steps_a_second_are_of_the_steps_that_were_made(tmp_path: Path) -> None:
    """A run that begins at step 1000000 is as fast as one that begins at 0, and as fast as the hub's goodput says."""
    for run, first in (("low", 0), ("high", 1_000_000)):
        points = [msgspec.structs.replace(metric(n, loss=1.0), step=first + n) for n in range(20)]
        write(tmp_path, run, [*points, finished()])
        watched = Watched(tmp_path, run)
        while watched.read():
            pass
        assert watched.steps_per_second("finished") == pytest.approx(20 / 19)
        assert watched.steps_per_second("running") == pytest.approx(1.0)
        assert "1.05 steps/s" in frame(watched, "finished", [], View(), 80, 24)[0].text


def test_json_has_the_findings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints the findings as JSON."""
    assert main(["top", "R", "--json", "--home", str(run)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["step"], told["metrics"]["trainer/loss"]["points"]) == (119, 260)
    assert {each["kind"] for each in told["findings"]} == {"dead_rank", "not_finite", "spike"}


def test_json_counts_alerts_as_findings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that no other finding tells of, by name; the frame has each with its step and tells it once."""
    raised = [alert("disk", "is full", step) for step in (3, 3, 9)]
    write(run, "R", raised, rank=1, attempt=2, token="fade", world_size=2)
    assert main(["top", "R", "--json", "--home", str(run)]) == 0
    (found,) = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["kind"] == "alert"]
    assert found["text"] == "alert disk: is full, 3 times in steps 3 to 9 on rank 1"
    assert main(["top", "R", "--once", "--home", str(run)]) == 0
    out = capsys.readouterr().out
    assert "alert disk: is full at step 9 on rank 1" in out
    assert "! alert" not in out


def test_nothing_is_read_twice(run: Path) -> None:
    """A second read takes what was added since, also of a writer that begins later."""
    watched = Watched(run, "R")
    while watched.read():
        pass
    before = watched.records
    watched.read()
    assert watched.records == before
    write(run, "R", [metric(130, loss=1.0)], rank=0, attempt=3, token="fade", wall_ns=START + SECOND)
    watched.read()
    assert (watched.records, watched.step) == (before + 1, 130)


@contextlib.contextmanager
def terminal(*arguments: str, rows: int = 24, columns: int = 80) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The command on a terminal of its own."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    line = [sys.executable, "-m", "stepscope", *arguments]
    process = subprocess.Popen(line, stdin=there, stdout=there, stderr=there, env=env, start_new_session=True)
    os.close(there)
    try:
        yield process, here
    finally:
        process.kill()
        process.wait()
        os.close(here)


def seen(here: int, word: str, seconds: float = 300.0) -> str:
    """Read the screen until a word is on it."""
    got, deadline = "", time.monotonic() + seconds
    ready = select.poll()  # unlike select.select it takes any number of open files
    ready.register(here, select.POLLIN)
    while word not in got:
        assert time.monotonic() < deadline, got[-2000:]
        if ready.poll(100):
            got += os.read(here, 65536).decode("utf-8", "replace")
    return got


def test_it_follows_a_run_on_a_terminal_until_q(tmp_path: Path) -> None:
    """What is written while it runs comes up by itself; `q` gives the terminal back."""
    write(tmp_path, "R", [metric(step, loss=1.0) for step in range(20)], name="live")
    with terminal("top", "live", "--interval", "0.1", "--home", str(tmp_path)) as (process, here):
        seen(here, "step 19")
        write(tmp_path, "R", [metric(77, loss=2.0), log("a late line")], rank=1, name="live", token="fade")
        seen(here, "step 77")
        os.write(here, b"q")
        assert process.wait(300) == 0


def asked(home: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command says to programs."""
    assert main([*words, "--json", "--home", str(home)]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_what_is_stored_is_not_read_again(
    tmp_path: Path, start_hub: StartHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hub, and with its store when it has stopped: the same values and findings, and no record is read."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    run = two_ranks(tmp_path, 0, 1)
    before = asked(run, capsys, "top", "R")
    assert main(["top", "R", "--once", "--home", str(run)]) == 0
    drawn = capsys.readouterr().out.splitlines()[:-1]  # the last line says where it was read from
    monkeypatch.setattr(stored_run, "LARGE", 1)
    hub = start_hub(home=run)
    answer: dict[str, Any] = {}
    while not answer.get("complete") or len(answer["findings"]) < 3:
        answer = hub.request("GET", "/api/runs/R/findings").json()
    begun = hub.request("GET", "/api/spans?run=R&open=true").json()["spans"]
    assert {(each["name"], each["rank"], each["duration_ms"]) for each in begun} == {
        ("train.evaluate", 0, None),
        ("train.evaluate", 1, None),
    }
    read: list[object] = []
    original = Tail.read

    def counted(tail: Tail, *limits: Any) -> Any:
        found = original(tail, *limits)
        read.extend(found)
        return found

    monkeypatch.setattr(Tail, "read", counted)
    monkeypatch.setattr(Diagnosis, "feed", lambda _, *fed: read.append(fed))
    for _ in ("the hub", "its store"):
        after = asked(run, capsys, "top", "R")
        assert {**after, "findings": 0} == {**before, "findings": 0}
        assert after["findings"] == asked(run, capsys, "findings", "R")["findings"] == answer["findings"]
        assert main(["top", "R", "--once", "--home", str(run)]) == 0
        assert sorted(capsys.readouterr().out.splitlines()[:-1]) == sorted(drawn)
        assert not read
        hub.stop()
