"""A hub that nobody reads stores seldom; a reader and the end of a trainer make it store at once."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import msgpack

pytest.importorskip("tests.chdb")

from stepscope.hub.diagnosing import thread
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.intake import pacing, store_pump
from stepscope.hub.questions.routes import mount
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving import app
from stepscope.hub.serving.app import build_app
from stepscope.journal.layout import host_name
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Metric
from tests.hub.in_process import request

NEVER = 3600.0
"""Commits are so far apart here, if nothing else makes the hub store."""
WRITER = Writer(id="r0-a1-here-1-ab", run="r", project="p", host=host_name(), pid=os.getpid(), wall_ns=time.time_ns())


class Quiet:
    """A hub in this process that stores once, and then waits for a reason."""

    def __init__(self, home: Path) -> None:
        place = HubHome(home)
        self.hub = Hub(HubOptions(home=home, yields=True), place, open_home_store(place), Tokens(place.tokens))
        self.app = build_app(self.hub, mount(self.hub, "0"))
        self._journal = Journal(home / "runs" / WRITER.run / WRITER.id, WRITER)
        self._steps = 0

    def log(self, count: int) -> None:
        """Write so many values into the journal of a trainer."""
        for _ in range(count):
            self._journal.append([msgpack.encode(Metric(self._steps + 1, self._steps, None, None, {"loss": 1.0}))])
            self._steps += 1

    def stored(self) -> int:
        """How many records are stored."""
        return self.hub.counters.total("stored", "folder")


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]) -> Iterator[Quiet]:
    """A hub that has made its first commit, of one value."""
    for name in ("QUIET_PACE_SECONDS", "BUSY_PACE_SECONDS"):
        monkeypatch.setattr(pacing, name, NEVER)
    for module in (pacing, store_pump):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(app, "CATCH_UP_SECONDS", 300.0)
    monkeypatch.setattr(thread, "NOTHING_SECONDS", NEVER)
    made = Quiet(tmp_path)
    made.log(1)
    made.hub.start()
    until(lambda: made.stored() == 1)
    yield made
    made.hub.close(1.0)


def test_the_first_answer_has_what_was_written_before_it(quiet: Quiet) -> None:
    """Though the hub had not stored it, because nobody read."""
    quiet.log(500)
    answer = request(quiet.app, "GET", "/api/runs/r/series?key=loss").json()
    assert answer["series"][0]["total"] == 501
    assert quiet.stored() == 501


def test_a_reader_makes_the_diagnosis_look_again(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    """What shows by its absence is looked for as soon as someone reads, though nothing new was stored."""
    diagnosing, rests = quiet.hub.diagnosing, list[float]()
    rest = diagnosing._rest

    def noted() -> float:
        rests.append(rest())
        return rests[-1]

    monkeypatch.setattr(diagnosing, "_rest", noted)
    diagnosing._wake.set()
    until(lambda: bool(rests) and rests[-1] == NEVER)
    before = diagnosing._ticked
    request(quiet.app, "GET", "/api/runs")
    until(lambda: diagnosing._ticked > before)


def test_a_process_that_ended_is_stored_at_once(quiet: Quiet, tmp_path: Path, until: Callable[..., None]) -> None:
    """All that a trainer wrote is stored once it is gone, though nobody reads and the next commit is far away."""
    script = """
import sys, stepscope
with stepscope.init(project="p", run_id="t", home=sys.argv[1], probes=False) as run:
    run.log({"loss": 1.0}, step=0)
    run.flush()
    print("logged", flush=True)
    sys.stdin.readline()
    for step in range(1, 300):
        run.log({"loss": 1.0}, step=step)
"""
    line = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "logged\n"
        quiet.hub.readers.note()  # or its first records are as late as its last ones
        until(lambda: "t" in {key.partition("/")[0] for key in quiet.hub.pacing._followed})
        quiet.hub.readers._last = float("-inf")
        trainer.stdin.write("\n")
    assert trainer.returncode == 0
    until(lambda: quiet.hub.store.engine.query("SELECT countIf(step = 299) AS found FROM metrics").one("found") == 1)


def test_much_is_stored_at_once(quiet: Quiet, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]) -> None:
    """What waits for the next commit is bounded."""
    quiet.log(100)
    monkeypatch.setattr(pacing, "MAX_WAITING_BYTES", 1000)
    until(lambda: quiet.stored() == 101)
