"""`runs` and `tail` where a hub runs: it is asked, also for runs that have no journals here."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.journal_answers import RUN, JournalAnswers
from stepscope.cli.main import main
from stepscope.model.names import EVENT_EXCEPTION, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.sinks.hub import Hub
from tests.cli.journals import SECOND, START, alert, event, finished, later, log, metric, span, this_host, write
from tests.hub.conftest import RunningHub, StartHub, start_hub
from tests.waiting import wait_until

__all__ = ["start_hub"]

WRITER = Writer(id="w", run="far", project="away", name="remote", rank=3, wall_ns=1_790_000_000_000_000_000)
T = WRITER.wall_ns
RECORDS: list[Record] = [
    Metric(T + 1_000_000_000, 7, None, "trainer", {"loss": 0.5, "lr": float("nan")}),
    Span(T + 2_000_000_000, 3_000_000, 7, None, b"t" * 16, b"s" * 8, None, "train.step", 0, 2, "boom"),
    Log(T + 3_000_000_000, None, None, None, None, 13, "hello"),
    Event(T + 4_000_000_000, None, None, None, None, 9, "milestone", {"n": 3}),
    Alert(T + 5_000_000_000, None, None, None, None, 17, "nan", "bad"),
]


def send(hub: RunningHub, seq: int, *records: Record) -> None:
    """Send records of a run that is elsewhere, and wait until they are stored."""
    before = hub.stored("native")
    sink = Hub(url=hub.url).open()
    sink.write([Batch(WRITER, seq, list(records))])
    sink.close()
    hub.wait_stored("native", before + len(records))


def listed(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    """What `runs --json` says."""
    capsys.readouterr()
    assert main(["runs", "--home", str(home), "--json", *options]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_keys_of_any_length(start_hub: StartHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run with keys of thousands of characters costs neither the list of all runs nor its own report."""
    hub = start_hub()
    long = {"k" * 5000: 1.0, "k" * 5000 + "2": 2.0, **{f"{at}" + "ü" * 480: float(at) for at in range(60)}}
    write(hub.home, "odd", [metric(1, loss=0.5, **long), finished()])
    hub.wait_stored("folder", 2)
    send(hub, 0, *RECORDS)
    far, odd = listed(hub.home, capsys)
    assert (far["run"], odd["values"]) == ("far", {"trainer/loss": 0.5})
    out = tmp_path / "report.html"
    assert main(["report", "odd", "--home", str(hub.home), "-o", str(out)]) == 0
    assert "kkkk" in out.read_text()


def test_runs(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub's runs, with values and what is on this disk, and those it has not read yet; latest first."""
    hub = start_hub()
    write(hub.home, "here", [metric(4, loss=0.25, lr=0.1), alert("nan"), finished()], name="base")
    hub.wait_stored("folder", 3)
    send(hub, 0, *RECORDS)
    far, here = listed(hub.home, capsys)
    assert (far["run"], far["project"], far["name"], far["last_step"], far["alerts"]) == ("far", "away", "remote", 7, 1)
    assert (far["values"], far["size"]) == ({"trainer/loss": 0.5, "trainer/lr": "NaN"}, 0)
    assert (here["run"], here["status"], here["values"]) == (
        "here",
        "finished",
        {"trainer/loss": 0.25, "trainer/lr": 0.1},
    )
    assert here["size"] == sum(path.stat().st_size for path in (hub.home / "runs").rglob("*.seg"))
    assert [row["run"] for row in listed(hub.home, capsys, "-n", "1")] == ["far"]
    assert main(["runs", "--home", str(hub.home), "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 2 runs shown" in shown
    assert ("SIZE" in shown, "0 B" in shown) == (True, False)
    write(hub.home, "other", [metric(5, nll=0.75), finished()])
    hub.wait_stored("folder", 5)
    found = {row["run"]: row["values"] for row in listed(hub.home, capsys)}
    assert found["other"] == {"trainer/nll": 0.75}
    assert found["here"] == {"trainer/loss": 0.25, "trainer/lr": 0.1}


def test_a_hub_that_refuses_does_not_hide_the_journals(
    start_hub: StartHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """If the hub requires a token, the command reports it and reads the journals."""
    home = tmp_path / "home"
    assert main(["hub", "token", "create", "--home", str(home), "--scope", "read"]) == 0
    write(home, "here", [metric(4, loss=0.25), finished()])
    hub = start_hub(home=home)
    capsys.readouterr()
    assert main(["runs", "--home", str(hub.home), "--json"]) == 0
    said = capsys.readouterr()
    assert [row["run"] for row in json.loads(said.out)] == ["here"]
    assert "STEPSCOPE_TOKEN" in said.err


def test_an_unknown_run_is_told_the_runs_of_the_hub(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Who names a run that is not there is told the runs that are, also those that have no journals here."""
    hub = start_hub()
    write(hub.home, "here", [metric(4, loss=0.25), finished()], name="base")
    hub.wait_stored("folder", 2)
    send(hub, 0, *RECORDS)
    for command in ("show", "findings"):
        capsys.readouterr()
        assert main([command, "nope", "--home", str(hub.home)]) == 2
        said = capsys.readouterr().err
        assert ("  far  remote" in said, "  here  base" in said) == (True, True)


def test_tail(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind of a run that is elsewhere has its line, as if its journals were here."""
    hub = start_hub()
    send(hub, 0, *RECORDS)
    capsys.readouterr()
    assert main(["tail", "far", "--home", str(hub.home)]) == 0
    assert [line[13:] for line in capsys.readouterr().out.splitlines()] == [
        "r0 step 7       metric trainer/loss=0.5 trainer/lr=!NaN",
        "r3 step 7       span   train.step 3 ms ERROR boom",
        "r3              log    WARN hello",
        "r3              event  INFO milestone n=3",
        "r3              alert  ERROR nan: bad",
    ]
    assert main(["tail", "remote", "--home", str(hub.home), "--kind", "alert", "--json"]) == 0
    (row,) = capsys.readouterr().out.splitlines()
    assert (json.loads(row)["name"], json.loads(row)["time"]) == ("nan", T + 5_000_000_000)
    assert main(["tail", "nobody", "--home", str(hub.home)]) == 2


@pytest.fixture
def following(start_hub: StartHub) -> Iterator[tuple[RunningHub, "subprocess.Popen[str]"]]:
    """A hub with a run from elsewhere, and a command that follows it."""
    hub = start_hub()
    send(hub, 0, RECORDS[2])
    line = [sys.executable, "-m", "stepscope", "tail", "far", "-f", "--json", "--home", str(hub.home)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        yield hub, process
        process.kill()


def test_tail_follows(following: tuple[RunningHub, "subprocess.Popen[str]"]) -> None:
    """What was there comes first, then what is stored, each once."""
    hub, process = following
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["body"] == "hello"
    send(hub, 1, Log(T + 6_000_000_000, None, None, None, None, 9, "two"), RECORDS[0])
    found = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [row["kind"] for row in found] == ["metric", "log"]
    assert found[0]["values"] == {"trainer/loss": 0.5, "trainer/lr": "NaN"}
    assert (found[1]["body"], found[1]["rank"]) == ("two", 3)


def document(home: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `show --json` says of the run R."""
    capsys.readouterr()
    assert main(["show", "R", "--home", str(home), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def headings(home: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """The sections of what `show` prints of the run R, with their lines."""
    assert main(["show", "R", "--home", str(home)]) == 0
    found: dict[str, list[str]] = {"": []}
    for line in capsys.readouterr().out.splitlines():
        if line.isupper() and line[:1].strip():
            found[line] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found


def shape(value: Any) -> Any:
    """The names of all fields, however deep."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else None


ASKED: list[tuple[str, dict[str, str]]] = [
    (RUN, {}),
    *((f"{RUN}/{name}", {}) for name in ("keys", "summary", "findings", "goodput")),
    ("/api/logs", {"kind": "event", "name": EVENT_EXCEPTION}),
    ("/api/alerts", {}),
    ("/api/spans", {"open": "true"}),
]
"""What commands ask about a run."""
OF_JOURNALS = {"curve", "damaged_frames", "records", "status", "unreadable_records", "world_size"}
"""Fields of metrics and writers that no hub has."""


def assert_part_of(mine: Any, theirs: Any, where: str) -> None:
    """Check that every field of the journals' answer is in the hub's, with the same value."""
    if isinstance(mine, dict):
        for name in mine.keys() - (OF_JOURNALS - theirs.keys()):
            assert name in theirs, (where, name)
            assert_part_of(mine[name], theirs[name], f"{where} {name}")
    elif isinstance(mine, list) and mine and isinstance(mine[0], dict):
        others = [each for each in theirs if not (where.endswith("keys") and each["key"].startswith("stepscope/"))]
        assert len(mine) == len(others), where
        for own, other in zip(mine, others, strict=True):
            assert_part_of(own, other, where)
    else:
        assert mine == pytest.approx(theirs), where


def test_show_has_one_schema(start_hub: StartHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run is the same document and text from its journals and from a hub that has it alone, field by field."""
    hub = start_hub()
    start = event(EVENT_STARTED, config={"lr": 0.1, "model": {"depth": 4}}, python="3.11", notes="why", tags={"a": 1})
    losses = [metric(n, loss=math.nan if n == 50 else 100.0 - n) for n in range(100)]
    own = Metric(START + 100 * SECOND, None, None, "stepscope", {"dropped/metric/disk": 3, "overhead/total": 0.25})
    error = event(EVENT_EXCEPTION, **{"exception.type": "ValueError"})
    rest = [alert("loss.nan", "the loss is NaN", 50), error, log("careful"), event("milestone", text="half")]
    spans = [span("train.step", n, n * SECOND, n) for n in (1, 2, 9, 4)]
    hung = span("evaluate", 99, None, 9)
    records = [start, *losses, *later(spans, 99), *later([hung], 99), own, *later([*rest, finished("failed")], 110)]
    write(hub.home, "R", records, name="base", pid=77)
    hub.wait_stored("folder", len(records))
    wait_until(lambda: len(hub.request("GET", "/api/runs/R/findings").json()["findings"]) == 3)
    journals = JournalAnswers(hub.home, "R")
    for path, given in ASKED:
        query = "&".join(f"{name}={value}" for name, value in {"run": "R", **given}.items())
        theirs = hub.request("GET", f"{path.replace('{run}', 'R')}?{query if '{run}' not in path else ''}").json()
        assert_part_of(journals.get(path, run="R", **given), theirs, path)
    here, text_here = document(hub.home, capsys), headings(hub.home, capsys)
    (hub.home / "runs" / "R").rename(tmp_path / "R")
    there, text_there = document(hub.home, capsys), headings(hub.home, capsys)
    assert shape(there) == shape(here)
    assert there.pop("size") == 0 < here.pop("size")
    for name in ("records", "damaged_frames", "unreadable_records"):  # only the journal knows
        assert [each.pop(name) for each in there["writers"]] == [None]
        assert [each.pop(name) is None for each in here["writers"]] == [False]
    for field, value in here.items():
        assert there[field] == value, field
    assert list(text_there) == list(text_here)
    same = ("FINDINGS", "CONFIG", "ENVIRONMENT", "SPANS", "OPEN SPANS", "ALERTS", "EXCEPTIONS", "EVENTS", "LOGS")
    for name in (*same, "OVERHEAD"):
        assert text_there[name] == text_here[name] != [], name
    assert [line.split()[:6] for line in text_there["METRICS"]] == [line.split()[:6] for line in text_here["METRICS"]]


def test_stop_has_one_schema(start_hub: StartHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A request to stop is answered with the same fields without a hub and with one, which knows of the first."""
    write(tmp_path, "R", [metric(1, loss=1.0)], host=this_host(), pid=os.getpid(), wall_ns=time.time_ns())

    def asked() -> dict[str, Any]:
        capsys.readouterr()
        assert main(["stop", "R", "--home", str(tmp_path), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        return {"run": found["run"], **found["stop"]}

    without = asked()
    hub = start_hub(home=tmp_path)
    hub.wait_stored("folder", 1)
    assert asked() == without
