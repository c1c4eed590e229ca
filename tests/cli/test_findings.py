"""`stepscope findings`, and findings in `show`: from journals alone, through the same engine as the hub's."""

import itertools
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stepscope.alerts.alert import Expected
from stepscope.cli.findings import LatestFindings, _report
from stepscope.cli.main import main
from stepscope.hub.alerting.alert_log import AlertLog
from tests.cli.journals import SECOND, event, finished, metric, span, this_host, write
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a run of two ranks: a NaN on one of them, and spans that are still open."""
    for rank in range(2):
        values = [1.0 + (step * 7919 % 13) / 100 for step in range(100)]
        if rank == 1:
            values[70] = math.nan
        records = [event("train.run.started", config={"lr": 0.1})]
        records += [metric(step, loss=value) for step, value in enumerate(values)]
        records += [span("all_reduce", 50 + rank, None, step=99), span("evaluate", 60 + rank, SECOND, step=98)]
        write(tmp_path, "R", [*records, finished()], rank=rank, world_size=2, name="base")
    return tmp_path


def test_findings_are_told_with_cause_and_advice(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What, where, why and what to do, for people and for programs."""
    assert main(["findings", "base", "--home", str(home)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ERROR  not finite: trainer/loss became NaN at step 70 on rank 1"
    assert lines[1] == "       Expected 1 to 1.12"
    assert " ".join(" ".join(lines[2:]).split()) == (
        "an overflow, a division by zero or a bad batch This rules out a wrong chart: the recorded value itself is not "
        "finite. Look at the inputs of that step; clip gradients, lower the learning rate, check for log or division "
        "of zero. $ stepscope step R 70"
    )
    assert main(["findings", "R", "--json", "--home", str(home)]) == 0
    answer = json.loads(capsys.readouterr().out)
    (found,) = answer["findings"]
    assert (answer["run"], answer["complete"]) == ("R", True)
    assert (found["kind"], found["step"], found["rank"], found["value"]) == ("not_finite", 70, 1, "NaN")
    assert found["next"] == "stepscope step RUN 70"


def test_a_run_without_faults_is_left_in_peace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence says so."""
    write(tmp_path, "R", [*(metric(step, loss=1.0 + step % 3) for step in range(50)), finished()])
    assert main(["findings", "latest", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing went wrong in R\n"


def test_a_run_that_is_being_diagnosed_is_not_said_to_be_well() -> None:
    """Until all of a run was looked at, the answer is that nothing was found yet."""
    answer = {"run": "R", "complete": False, "progress": 0.25, "findings": [], "time": ""}
    assert list(_report(answer)) == ["R is being diagnosed, 25% so far, nothing found yet"]
    assert list(_report({**answer, "complete": True})) == ["nothing went wrong in R"]


def test_show_has_findings_and_the_ranks_of_open_spans(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ranks that wait are named, not only the span."""
    assert main(["show", "R", "--home", str(home)]) == 0
    out = capsys.readouterr().out
    assert "FINDINGS\n  ERROR  not finite: trainer/loss became NaN at step 70 on rank 1\n" in out
    assert "\n         Expected 1 to 1.12\n" in out
    spans = out[out.index("OPEN SPANS") :].splitlines()[1:3]
    assert [line.split()[1:3] for line in spans] == [["r0", "all_reduce"], ["r1", "all_reduce"]]
    assert main(["show", "R", "--json", "--home", str(home)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["rank"] for each in shown["open_spans"]] == [0, 1]
    assert [each["kind"] for each in shown["findings"]] == ["not_finite"]


def test_the_last_line_says_where_the_time_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Computing, waiting for data and the rest, with their shares; `show` has the same sentence."""
    parts = (span("train.forward", 1, 6 * SECOND, 1), span("train.data_load", 2, 3 * SECOND, 1))
    write(tmp_path, "R", [*parts, span("other", 3, 10 * SECOND, 1)])
    expected = "60% computing, 30% waiting for data, 10% outside of timed spans"
    assert main(["findings", "R", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"time   {expected}"
    assert main(["show", "R", "--home", str(tmp_path)]) == 0
    assert f"time {expected}\n" in capsys.readouterr().out


def test_what_a_person_expects_is_muted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mark that a hub keeps is read without one, and without touching its file."""
    (home / "hub").mkdir()
    log = AlertLog(home / "hub")
    log.add(Expected(id="e", rule="", finding="not_finite", key="trainer/loss", run="R", who="ann"))
    kept = (home / "hub" / "alerts.log").stat().st_mtime_ns
    assert main(["findings", "R", "--home", str(home)]) == 0
    nothing, line, why = capsys.readouterr().out.splitlines()
    assert nothing == "nothing unexpected went wrong in R"
    assert (line.split()[0], why.strip()) == ("muted", "expected, marked by ann")
    assert main(["show", "R", "--home", str(home)]) == 0
    assert "on rank 1\n         expected, marked by ann\n" in capsys.readouterr().out
    assert (home / "hub" / "alerts.log").stat().st_mtime_ns == kept


def test_a_hang_is_named_without_a_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that lives on this machine and records nothing for long hangs, in the span that it is in."""
    now = time.time_ns()
    who = {"host": this_host(), "pid": os.getpid(), "wall_ns": now}
    steps = [span("train.step", 100 + step, SECOND // 10, step=step) for step in range(40)]
    moved = [structs.replace(each, time=now - 60 * SECOND + at * SECOND // 10) for at, each in enumerate(steps)]
    waiting = structs.replace(span("all_reduce", 1, None, step=40), time=now - 50 * SECOND)
    write(tmp_path, "R", [*moved, waiting], **who)
    assert main(["findings", "R", "--json", "--home", str(tmp_path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["kind"], found["span"], found["step"]) == ("hang", "all_reduce", 39)


def test_findings_of_a_hub_are_read_and_not_computed_again(home: Path, start_hub: StartHub) -> None:
    """With a hub, its findings are shown; when it goes away, the journals are diagnosed."""
    found = LatestFindings(home, "R", clock=itertools.count(step=2.0).__next__)
    hub = start_hub(home=home)
    answer: dict[str, Any] = {}
    while not answer.get("complete") or not answer["findings"]:
        answer = hub.request("GET", "/api/runs/R/findings").json()
    assert not found.advance(1.0)
    assert found.findings() == answer["findings"]
    assert not found._journals._journals
    hub.stop()
    while found.advance(1.0):
        pass
    assert found.findings() == answer["findings"]
