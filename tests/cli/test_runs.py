"""`stepscope runs` on real journals."""

import json
import math
import os
import time
from pathlib import Path

import pytest

from stepscope.cli.listed_run import listed_run
from stepscope.cli.main import main
from stepscope.journal import layout
from stepscope.journal.run_summary import read_run
from stepscope.journal.watched import Watched
from stepscope.model import names
from stepscope.model.records import Event, Log, Metric
from tests.cli.journals import SECOND, START, age, alert, finished, metric, span, this_host, write


def listed(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    """Run the command and read its JSON."""
    assert main(["runs", "--home", str(home), "--json", *options]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert isinstance(rows, list)
    return rows


def test_one_row_tells_it_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Id, project, name, status, attempts, ranks, step, values, alerts, times, size."""
    write(tmp_path, "R1", [metric(9, loss=1.0)], name="base")
    for rank in (0, 1):
        points = [metric(n, loss=1.0 / n, lr=0.1) for n in range(1, 5)]
        write(
            tmp_path, "R1", points, [alert("nan"), finished()],
            attempt=2, rank=rank, name="base", wall_ns=START + SECOND,
        )  # fmt: skip
    (row,) = listed(tmp_path, capsys)
    assert row.pop("size") == sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    assert row == {
        "run": "R1",
        "project": "gpt",
        "name": "base",
        "notes": "",
        "tags": {},
        "archived": False,
        "edited": None,
        "status": "finished",
        "imported": None,
        "attempts": 2,
        "ranks": 2,
        "last_step": 4,
        "values": {"trainer/loss": 0.25, "trainer/lr": 0.1},
        "alerts": 2,
        "findings": None,
        "started": "2023-11-14T22:13:20.000000Z",
        "ended": "2023-11-14T22:13:29.000000Z",
        "duration_seconds": 9.0,
        "damaged": 0,
    }


def test_the_table_fits_in_100_columns_and_marks_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Long names are cut, a NaN stands out, alerts come first."""
    run = "20251231-235959-0123abcd"
    write(tmp_path, run, [metric(10**9, loss=math.nan), alert("nan"), finished("failed")], name="n" * 80)
    assert main(["runs", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].split() == [
        "RUN", "PROJECT/NAME", "STATUS", "STEP", "ATT", "RANKS", "STARTED", "LASTED"
    ]  # fmt: skip
    assert "failed" in lines[1]
    assert lines[2] == "  1 alert   trainer/loss !NaN"


@pytest.mark.parametrize(("width", "step"), [(60, 19), (80, 19 * 10**12), (100, 19 * 10**12)])
def test_an_id_is_never_cut(
    width: int, step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of runs that started in one second differ at their end; a narrow terminal leaves out other columns."""
    runs = [f"20261119-015357-{number:08x}" for number in (0xEEE33C19, 0x97B0FC64)]
    for id in runs:
        late = Metric(START, step, None, "trainer", {"loss": 0.5})
        write(tmp_path, id, [late], project="a project", name="n" * 200)
    monkeypatch.setattr("stepscope.cli.text.width", lambda: width)
    assert main(["runs", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("2026")} == set(runs)
    assert all(len(line) <= width for line in lines), lines
    assert "a project/nnnnn" in "\n".join(lines)
    assert ("SIZE" in lines[0], "STATUS" in lines[0]) == (False, True)


def test_an_id_longer_than_any_tool_makes_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line fits whatever somebody gave as an id."""
    write(tmp_path, "x" * 90, [metric(0, loss=0.5)])
    assert main(["runs", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines), lines


def test_json_spells_non_finite_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has no NaN; the words stand for it."""
    write(tmp_path, "R", [metric(1, loss=math.nan, a=math.inf, b=-math.inf)])
    (row,) = listed(tmp_path, capsys)
    assert row["values"] == {"trainer/loss": "NaN", "trainer/a": "Infinity", "trainer/b": "-Infinity"}


def test_an_empty_home_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing recorded yet."""
    assert listed(tmp_path / "nowhere", capsys) == []
    assert main(["runs", "--home", str(tmp_path / "nowhere")]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'nowhere'}\n"
    (tmp_path / "hub" / "journal").mkdir(parents=True)
    assert main(["runs", "--home", str(tmp_path)]) == 0
    assert f"while it runs: stepscope hub --home {tmp_path}" in capsys.readouterr().out


def test_many_runs_are_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest runs are shown with a note about the others; JSON has all."""
    for number in range(60):
        write(tmp_path, f"R{number:02d}", [metric(1, loss=1.0)])
        os.utime(tmp_path / "runs" / f"R{number:02d}", (number, number))
    assert main(["runs", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "50 of 60 runs shown" in out
    assert out.splitlines()[1].startswith("R59")
    assert len(listed(tmp_path, capsys)) == 60
    assert [row["run"] for row in listed(tmp_path, capsys, "-n", "2")] == ["R59", "R58"]


def test_status_of_the_dead_the_living_and_the_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fresh files are running, a silent living process is stalled; otherwise no reported end is a crash."""
    write(tmp_path, "fresh", [metric(1, loss=1.0)])
    age(write(tmp_path, "dead", [metric(1, loss=1.0)]))
    alive = {"host": this_host(), "pid": os.getpid(), "wall_ns": time.time_ns()}
    age(write(tmp_path, "alive", [metric(1, loss=1.0)], **alive))
    age(write(tmp_path, "again", [metric(1, loss=1.0), finished("failed")]))
    age(write(tmp_path, "again", [metric(1, loss=1.0)], attempt=2))
    forked = write(tmp_path, "forked", [metric(1, loss=1.0)], main=False, token="f0f0")
    age(write(tmp_path, "forked", [finished("preempted")]))
    assert forked.exists()
    (tmp_path / "runs" / "empty").mkdir()
    assert {row["run"]: row["status"] for row in listed(tmp_path, capsys)} == {
        "fresh": "running",
        "dead": "crashed",
        "alive": "stalled",
        "again": "crashed",
        "forked": "preempted",
        "empty": "empty",
    }


def test_values_survive_a_long_silence(tmp_path: Path) -> None:
    """A hung run with heartbeats only still shows its last loss and step."""
    beats = [[Metric(START, None, None, "stepscope", {"open_spans": 1})] for _ in range(100)]
    write(tmp_path, "R", [metric(7, loss=0.5)], *beats)
    seen = listed_run(tmp_path, "R")
    assert (seen.last_step, seen.values) == (7, {"trainer/loss": 0.5})


def test_a_listed_run_agrees_with_the_whole_summary(tmp_path: Path) -> None:
    """The quick way tells what the thorough way tells."""
    for rank in (0, 1):
        batches = [
            [metric(n, loss=float(n)), span("train.step", n, 5, n), Log(START, n, None, None, None, 9, "x")]
            for n in range(50)
        ]
        write(tmp_path, "R", *batches, [alert("a"), finished()], rank=rank, segment_bytes=1000)
    seen, summary = listed_run(tmp_path, "R"), read_run(tmp_path, "R")
    assert (seen.last_step, seen.alerts) == (summary.last_step, summary.alerts.total())
    assert (seen.started, seen.ended) == (summary.started, summary.ended)
    assert seen.values["trainer/loss"] == summary.keys["trainer/loss"].last


def test_damage_is_counted_and_the_rest_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit, a torn tail and a foreign file do not hide a run."""
    folder = write(tmp_path, "R", *([metric(n, loss=float(n))] for n in range(10)))
    path = layout.list_segments(folder)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:-3])
    (folder / "notes.txt").write_text("not a segment")
    (tmp_path / "runs" / "file").write_text("not a run")
    (row,) = listed(tmp_path, capsys)
    assert (row["damaged"], row["last_step"]) == (1, 8)


def test_a_run_lasts_until_its_last_span_ends(tmp_path: Path) -> None:
    """The duration of a run holds the whole of a span that began long before its end, in lists and in detail."""
    write(tmp_path, "R", [metric(1, loss=1.0), span("save", 1, 30 * SECOND)])
    assert listed_run(tmp_path, "R").duration == pytest.approx(30, abs=2)
    assert read_run(tmp_path, "R").ended == listed_run(tmp_path, "R").ended


def test_lists_details_and_the_live_view_agree_on_restarts_and_clocks(tmp_path: Path) -> None:
    """Tags are those of the newest attempt, and a clock that was set counts in none of them as time that passed."""

    def start(**attrs: object) -> Event:
        return Event(START, None, None, None, None, 9, names.EVENT_STARTED, dict(attrs))

    shift = Event(START - 3600 * SECOND, None, None, None, None, 9, names.EVENT_CLOCK, {"seconds": -3600.0})
    write(tmp_path, "R", [start(tags=["old"]), metric(1, loss=1.0)])
    write(tmp_path, "R", [start(tags=["new"], notes="second"), metric(2, loss=1.0), shift], attempt=2)
    seen, summary, watched = listed_run(tmp_path, "R"), read_run(tmp_path, "R"), Watched(tmp_path, "R")
    watched.read(60)
    assert dict(seen.tags) == dict(summary.described.tags) == {"new": True}
    assert seen.notes == summary.described.notes == "second"
    assert seen.last_step == summary.last_step == watched.step == 2
    assert (seen.started, seen.ended) == (summary.started, summary.ended)
    assert seen.duration == watched.seconds
