"""`stepscope show` on real journals."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.main import main
from stepscope.model import names
from stepscope.model.records import Metric
from tests.cli.journals import SECOND, START, alert, event, finished, log, metric, span, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run with a bit of everything."""
    start = event(names.EVENT_STARTED, config={"lr": 0.1, "model": {"depth": 4}}, python="3.11", cwd="/work")
    losses = [metric(n, loss=math.nan if n == 50 else 100.0 - n) for n in range(100)]
    error = event(names.EVENT_EXCEPTION, **{"exception.type": "ValueError", "exception.message": "a\nb"})
    beat = Metric(START, None, None, "stepscope", {"dropped/metric/disk": 3, "rejected/value/string": 1})
    spans = [span("train.step", n, n * SECOND, n) for n in (1, 2, 9)]
    hung = span("evaluate", 99, None, 9)
    last = [alert("loss.nan", "the loss is NaN", 50), error, log("careful"), event("milestone", text="half")]
    write(tmp_path, "R", [start, *losses], [*spans, hung, beat, *last, finished("failed")], name="base", pid=77)
    return tmp_path


def shown(home: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the command and read its JSON."""
    assert main(["show", "R", "--home", str(home), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_text(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every part of a run has its section, in 100 columns."""
    assert main(["show", "base", "--home", str(home)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[0] == "R  gpt/base  failed"
    sections = [line for line in lines if line and line == line.upper() and not line.startswith(" ")]
    assert sections == [
        "FINDINGS", "CONFIG", "ENVIRONMENT", "WRITERS", "METRICS", "SPANS", "OPEN SPANS", "ALERTS", "EXCEPTIONS",
        "EVENTS", "LOGS", "RECORDED",
    ]  # fmt: skip
    assert "  model.depth  4" in lines
    (loss,) = [line for line in lines if line.strip().startswith("trainer/loss")]
    assert loss.split()[:6] == ["trainer/loss", "100", "1", "1", "100", "!1"]
    assert loss.split()[6].count("!") == 1
    assert "ValueError a⏎b" in out
    assert "dropped/metric/disk" in out


def test_events_are_counted_where_they_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has a section of its own, as rejected keys and settings have, is no missing line of the events."""
    others = [event(names.EVENT_REJECTED, keys={"model": "string"}), event(names.EVENT_CONFIG, lr=0.1)]
    write(tmp_path, "R", [metric(1, loss=0.5), *others, finished()])
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert ("EVENTS" in out, "REJECTED" in out) == (False, True)
    write(tmp_path, "S", [*others, *(event("milestone", at=n) for n in range(12)), finished()])
    assert main(["show", "S", "--home", str(tmp_path)]) == 0
    assert "the last 10 of 12:" in capsys.readouterr().out


def test_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for programs, exactly."""
    found = shown(home, capsys)
    assert (found["status"], found["last_step"], found["attempts"], found["ranks"]) == ("failed", 99, [1], [0])
    assert found["config"] == {"lr": 0.1, "model": {"depth": 4}}
    assert found["environment"] == {"python": "3.11", "cwd": "/work"}
    assert found["keys"] == {
        "trainer/loss": {
            "count": 100, "last": 1.0, "last_step": 99, "min": 1.0, "max": 100.0, "non_finite": 1
        }
    }  # fmt: skip
    assert found["spans"] == {
        "train.step": {"count": 3, "errors": 0, "mean_seconds": 4.0, "p50_seconds": 2.0, "max_seconds": 9.0}
    }
    assert [each["name"] for each in found["open_spans"]] == ["evaluate"]
    assert found["open_spans"][0]["span_id"] == "0000000000000063"
    assert found["alerts"]["counts"] == {"loss.nan": 1}
    assert found["counters"] == {"dropped/metric/disk": 3, "rejected/value/string": 1}
    assert found["logs"] == {"WARN": 1}
    assert found["writers"][0]["pid"] == 77
    assert found["writers"][0]["damaged_frames"] == 0


def test_open_spans_have_their_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which rank waits where is shown as text and as JSON."""
    for rank in range(2):
        waits = span("all_reduce", 7 + rank, None, rank + 1)
        write(tmp_path, "R", [metric(1, loss=1.0), waits], rank=rank, world_size=2)
    assert [(each["name"], each["rank"]) for each in shown(tmp_path, capsys)["open_spans"]] == [
        ("all_reduce", 0),
        ("all_reduce", 1),
    ]
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "all_reduce" in line]
    assert ["r0" in lines[0], "r1" in lines[1]] == [True, True]


def test_last_value_nan_is_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program sees that the last loss was no number."""
    write(tmp_path, "R", [metric(1, loss=1.0), metric(2, loss=-math.inf)])
    key = shown(tmp_path, capsys)["keys"]["trainer/loss"]
    assert (key["last"], key["min"], key["non_finite"]) == ("-Infinity", 1.0, 1)


def test_a_run_with_nothing_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without a record is shown as what it is."""
    (tmp_path / "runs" / "R").mkdir(parents=True)
    assert shown(tmp_path, capsys)["status"] == "empty"
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("R")


def test_an_unknown_run_exits_2(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message goes to standard error and names the nearest."""
    assert main(["show", "bsae", "--home", str(home)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("stepscope: no run 'bsae'")
    assert "  R  base" in err


def test_booleans_are_the_numbers_they_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command shows booleans as numbers, as the store does."""
    write(tmp_path, "R", [metric(1, solved=False), metric(2, solved=True)])
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "trainer/solved" in line]
    assert line.split()[1:5] == ["2", "1", "0", "1"]
    assert repr([shown(tmp_path, capsys)["keys"]["trainer/solved"][part] for part in ("last", "min")]) == "[1, 0]"
    assert main(["tail", "R", "--home", str(tmp_path)]) == 0
    assert "trainer/solved=0" in (out := capsys.readouterr().out)
    assert "trainer/solved=1" in out
    assert main(["runs", "--home", str(tmp_path), "--json"]) == 0
    assert repr(json.loads(capsys.readouterr().out)[0]["values"]) == "{'trainer/solved': 1}"
    assert main(["top", "R", "--home", str(tmp_path), "--json"]) == 0
    assert repr(json.loads(capsys.readouterr().out)["metrics"]["trainer/solved"]["last"]) == "1"


def test_a_process_that_joined_is_no_fork(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who called `init` in a run that was on has joined; a fork has the beginning of its parent's token."""
    tokens = {"aaaaaa111111": True, "aaaaaa222222": False, "bbbbbb111111": False, "bbbbbb222222": False}
    for number, (token, is_main) in enumerate(tokens.items()):
        write(tmp_path, "R", [metric(1, loss=1.0)], token=token, main=is_main, pid=number + 1, wall_ns=START + number)
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("ATT")) + 1
    parts = {
        line.partition("elsewhere")[2].split()[0]: line.partition("elsewhere")[0] for line in lines[first : first + 4]
    }
    assert {pid: part.split()[1:] for pid, part in parts.items()} == {
        "1": ["0"], "2": ["0", "fork"], "3": ["0", "joined"], "4": ["0", "fork"]
    }  # fmt: skip


def test_a_rejected_key_has_the_call_that_would_record_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each reason for which the SDK rejects a value is answered with a call, which names the key."""
    reasons = {"note": "string", "hist": "vector", "z": "complex", "x": "type Thing", "n": "none", "big": "too large"}
    write(tmp_path, "R", [metric(1, loss=1.0), event(names.EVENT_REJECTED, keys=reasons)])
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "'note': string\n    run.event('note', {'text': value})" in out
    for key in reasons:
        assert out.count(repr(key)) >= 2, key
