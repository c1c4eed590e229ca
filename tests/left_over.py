"""Processes that tests started and left running, found by a variable that every child inherits."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked

MARK = "PYTEST_STEPSCOPE_SESSION"
"""Names this run of pytest in the environment of all that it starts."""
LEAVE_SECONDS = 40.0
"""How long a shipper may take to find that nobody needs it any more."""


@dataclass(frozen=True)
class Left:
    """A process that is still running."""

    pid: int
    line: str
    """Its command line."""
    test: str
    """The test that started it; the first one that used it when tests share it."""
    worker: str
    """The worker of pytest that ran the test; empty when there is one process for all tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Mark what this run of pytest starts; its workers are started by it."""
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = uuid.uuid4().hex


def running(wanted: Callable[[Left], bool]) -> list[Left]:
    """The running processes that this run of pytest started, without zombies."""
    session, found = os.environ[MARK], []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is not ours
            lines = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            env = {name: value for name, _, value in (each.partition("=") for each in lines)}
            if env.get(MARK) == session and int(entry.name) != os.getpid():
                line = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
                test, worker = env.get("PYTEST_CURRENT_TEST", "unknown"), env.get("PYTEST_XDIST_WORKER", "")
                found.append(Left(int(entry.name), line, test, worker))
    return [each for each in found if wanted(each)]


def end(wanted: Callable[[Left], bool]) -> list[Left]:
    """Wait until they have ended; those that have not are killed and returned."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while (left := running(wanted)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for each in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    return left


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of pytest whose tests left processes running, once its workers and what tests share have ended."""
    forked.close()
    if hasattr(session.config, "workerinput"):
        return
    left = end(lambda each: "multiprocessing." not in each.line)  # Python's own, which end with this process
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        for each in left:
            reporter.write_line(f"LEFT RUNNING by {each.test}: {each.pid} {each.line[:200]}", red=True)
