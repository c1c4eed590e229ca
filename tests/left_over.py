"""Processes that tests started and left running, found by a variable that every child inherits."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked

MARK = "PYTEST_STEPSCOPE_SESSION"
"""Names this run of pytest in the environment of all that it starts."""
WORKER = "PYTEST_STEPSCOPE_WORKER"
"""Names the worker of `-n` in the environment of all that its tests start; absent when one process runs all tests."""
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


def pytest_configure() -> None:
    """Mark what this run of pytest starts."""
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
                test, worker = env.get("PYTEST_CURRENT_TEST", "unknown"), env.get(WORKER, "")
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


@pytest.fixture(autouse=True, scope="module")
def no_shipper_is_left() -> Iterator[None]:
    """No test leaves a shipper at work, which would try for a day; one that is left is killed."""
    yield
    worker = os.environ.get(WORKER, "")
    left = end(lambda each: "ship --background" in each.line and each.worker == worker)
    assert not left, f"shippers were left by the tests of this file: {left}"


def pytest_worker_end() -> None:
    """End the processes that the tests of a worker were forked from."""
    forked.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of pytest whose tests left processes running, once its workers and what tests share have ended."""
    forked.close()
    left = end(lambda each: "multiprocessing." not in each.line)  # Python's own, which end with this process
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        for each in left:
            reporter.write_line(f"LEFT RUNNING by {each.test}: {each.pid} {each.line[:200]}", red=True)
