"""How a run fares, by what was said and by who is alive."""

import os
import subprocess
import sys
import time

import pytest

from stepscope.cli.status import run_status, writer_status
from stepscope.journal.living import is_alive
from stepscope.model.writer import Writer
from tests.cli.journals import NOBODY, this_host

NOW = 1_000_000.0
OLD, FRESH = NOW - 16, NOW - 14


def writer(**who: object) -> Writer:
    """A dead writer, unless told otherwise."""
    fields = {"id": "w", "run": "R", "project": "p", "host": "elsewhere", "pid": NOBODY} | who
    return Writer(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", ["finished", "failed", "preempted"])
def test_the_last_word_decides(said: str) -> None:
    """What a writer said counts, however fresh its files are."""
    assert writer_status(writer(), said, FRESH, NOW) == said


def test_silence_is_running_while_it_writes_and_crashed_after() -> None:
    """A heartbeat every 5 s; after 15 s of nothing, from elsewhere, it is dead."""
    assert writer_status(writer(), None, FRESH, NOW) == "running"
    assert writer_status(writer(), None, OLD, NOW) == "crashed"
    assert writer_status(writer(main=False), None, OLD, NOW) == "ended"


def test_a_living_process_of_this_host_runs_however_old_its_files() -> None:
    """A stopped or starved trainer is not dead."""
    alive = writer(host=this_host(), pid=os.getpid(), wall_ns=time.time_ns())
    assert writer_status(alive, None, OLD, NOW) == "running"
    assert writer_status(writer(host=this_host()), None, OLD, NOW) == "crashed"


def test_the_same_pid_elsewhere_says_nothing() -> None:
    """Pids of other hosts are not ours."""
    assert writer_status(writer(pid=os.getpid(), wall_ns=time.time_ns()), None, OLD, NOW) == "crashed"


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
    """A writer of unknown pid is not taken for a process group."""
    assert not is_alive(0, time.time_ns())
    assert not is_alive(NOBODY, time.time_ns())


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        (["finished", "finished"], "finished"),
        (["finished", "running"], "running"),
        (["finished", "crashed"], "crashed"),
        (["running", "failed"], "failed"),
        (["preempted", "finished"], "preempted"),
        (["running", "crashed"], "running"),
        (["odd word"], "odd word"),
        ([], "empty"),
    ],
)
def test_ranks_are_summed_up_by_what_needs_a_look(statuses: list[str], whole: str) -> None:
    """One failed rank is a failed run."""
    assert run_status(statuses) == whole
