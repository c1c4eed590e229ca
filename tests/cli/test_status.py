"""States of runs that only the processes of this machine can tell."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.journal_answers import RUN, JournalAnswers
from stepscope.cli.main import main
from stepscope.journal.layout import is_alive, process_alive
from stepscope.journal.run_summary import read_run as summarised
from stepscope.journal.watched import Watched
from stepscope.model.ports import Writer
from stepscope.testing import read_run
from tests.cli.journals import NOBODY, metric, this_host, write
from tests.conftest import Start


def writer(**who: object) -> Writer:
    """A dead writer, unless configured otherwise."""
    fields = {"id": "w", "run": "R", "project": "p", "host": "elsewhere", "pid": NOBODY} | who
    return Writer(**fields)  # type: ignore[arg-type]


def test_a_process_of_another_host_is_not_looked_for() -> None:
    """For pids of other hosts, or without a pid, only the time of the last record is used."""
    assert process_alive(writer(pid=os.getpid(), wall_ns=time.time_ns())) is None
    assert process_alive(writer(host=this_host(), pid=0)) is None


def test_a_process_of_this_host_is_looked_for() -> None:
    """A stopped or starved trainer is not dead, and one that is gone is, however fresh its files are."""
    assert process_alive(writer(host=this_host(), pid=os.getpid(), wall_ns=time.time_ns())) is True
    assert process_alive(writer(host=this_host())) is False


def test_a_process_younger_than_the_writer_proves_nothing() -> None:
    """It may have been given the pid later, or the clock was set: silence decides."""
    assert process_alive(writer(host=this_host(), pid=os.getpid(), wall_ns=1)) is None


FORKED = """
import os, time
import stepscope
run = stepscope.init()
child = os.fork()
run.log({"loss": 1.0})
if not child:
    run.flush()
time.sleep(600)
"""


def test_a_killed_process_crashed_at_once(
    home: Path, start: Start, until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """`runs`, `show` and `top` see that it is gone while its files are fresh, and so for a process forked from it."""

    def seen() -> tuple[object, ...]:
        told = {name: _json(home, capsys, name) for name in ("runs", "show")}
        watched = Watched(home, "e2e")
        watched.read()
        writers = {each["main"]: each["status"] for each in told["show"]["writers"]}
        return told["runs"][0]["status"], told["show"]["status"], watched.status(), writers

    program = start(FORKED)
    until(lambda: sum("loss" in getattr(each, "values", ()) for each in read_run(home, "e2e")) == 2)
    assert seen() == ("running", "running", "running", {True: "running", False: "running"})
    os.killpg(program.pid, signal.SIGKILL)
    program.process.wait()
    until(lambda: _json(home, capsys, "show")["writers"][1]["status"] == "ended", seconds=5)  # nobody waits for it
    assert seen() == ("crashed", "crashed", "crashed", {True: "crashed", False: "ended"})


def _json(home: Path, capsys: pytest.CaptureFixture[str], command: str) -> Any:
    """What a command tells a program about the run."""
    assert main([command, *(["latest"] if command == "show" else []), "--home", str(home), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_process_that_ends_while_its_journal_is_read_has_not_crashed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is checked before its records are read, so that its exit record is not missed."""
    write(home, "R", [metric(1, loss=1.0)], host=this_host(), pid=os.getpid(), wall_ns=time.time_ns())
    order: list[str] = []
    # Nobody outside sees which of the two came first, so both are listened to; they do what they always do.
    monkeypatch.setattr(
        "stepscope.journal.layout.process_alive", lambda who: order.append("look") or process_alive(who)
    )
    monkeypatch.setattr(
        "stepscope.cli.journal_answers.read_run", lambda *given: order.append("read") or summarised(*given)
    )
    assert JournalAnswers(home, "R").get(RUN, run="R")["status"] == "running"
    assert order == ["look", "read"]


def test_who_watches_reads_before_a_process_has_crashed(home: Path) -> None:
    """The exit record of a process that ended since the last check is read first."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        write(home, "R", [metric(1, loss=1.0)], host=this_host(), pid=other.pid, wall_ns=time.time_ns())
        watched = Watched(home, "R")
        watched.read()
        other.kill()
        other.wait()
        assert watched.status() == "running"
        watched.read()
        assert watched.status() == "crashed"


def test_a_process_that_proc_hides_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells that it is another user's, where /proc shows everyone only their own.

    It never says so to root, who tests may be, so here somebody says it in its place.
    """

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert is_alive(NOBODY, time.time_ns())


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="this machine has no /proc")
def test_a_pid_that_was_given_again_is_another_process() -> None:
    """A process that began after the writer did is not the writer."""
    assert not is_alive(os.getpid(), time.time_ns() - 10**9 * 86_400 * 365)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="this machine has no /proc")
def test_a_process_nobody_has_reaped_is_dead() -> None:
    """A zombie does not train."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.pid, time.time_ns())
    child.stdout.close()
    child.wait()


def test_no_pid_is_nobody() -> None:
    """A writer with an unknown pid is not treated as a process group."""
    assert not is_alive(0, time.time_ns())
    assert not is_alive(NOBODY, time.time_ns())
    assert not is_alive(10**30, time.time_ns())
