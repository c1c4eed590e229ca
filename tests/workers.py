"""Runs tests in several processes: `-n 8`. They are forked when all tests are collected, which is done once for all.

A group of tests is what one process runs from its first test to its last: a file, or the files of a world. An idle
process takes the next group. Where a process dies, the test it ran has failed, and another one runs the rest.
"""

import atexit
import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest._io import TerminalWriter

from tests.lanes import group_of
from tests.left_over import WORKER

END_SECONDS = 60.0
"""How long workers that are interrupted may take to close what their tests use."""


class Specification:
    """Hooks for what has a life in each worker."""

    def pytest_worker_start(self, config: pytest.Config) -> None:
        """Begin in a process that was just forked."""

    def pytest_worker_end(self, config: pytest.Config, output: dict[str, Any]) -> None:
        """End in a worker that has run its last test; what is put into `output` reaches the parent."""

    def pytest_worker_ended(self, config: pytest.Config, output: dict[str, Any]) -> None:
        """Take in the parent what a worker has put out."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks above."""
    pluginmanager.add_hookspecs(Specification)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option, with the short name that pytest-xdist has given it."""
    parser.getgroup("workers")._addoption("-n", dest="workers", type=int, default=0, help="processes that run tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; without `-n`, and where tests cannot be collected, pytest does what it does."""
    config = session.config
    count = int(config.getoption("workers"))
    if not count or config.option.collectonly or session.testsfailed:
        return None
    if len(threads := threading.enumerate()) > 1:
        raise pytest.UsageError(f"workers cannot be forked beside threads: {threads[1:]}")
    groups = _groups(session.items)
    _Parent(session, groups).run(min(count, len(groups)))
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _groups(items: list[pytest.Item]) -> list[range]:
    """The items of each file or world, which stand together."""
    starts, before = [], None
    for index, item in enumerate(items):
        if (name := group_of(item.nodeid)) != before:
            starts.append(index)
            before = name
    return [range(*ends) for ends in zip(starts, [*starts[1:], len(items)], strict=True)]


@dataclass
class _Worker:
    """A process that runs tests, as its parent knows it."""

    name: str
    pid: int
    connection: "Connection[Any, Any]"
    group: range = range(0)
    """The items that it has been given and has not begun."""
    running: int | None = None
    """The item that it has begun and not ended."""
    gateway: SimpleNamespace = field(init=False)
    _workerinfocache: str = field(init=False)

    def __post_init__(self) -> None:
        self.gateway = SimpleNamespace(id=self.name)  # here and there pytest's reports look for its name
        self._workerinfocache = f"[{self.name}]"


class _Parent:
    """Gives groups to workers and takes what they report."""

    def __init__(self, session: pytest.Session, groups: Iterable[range]) -> None:
        self._session, self._config = session, session.config
        self._groups = deque(groups)
        self._workers: dict[Any, _Worker] = {}
        self._started = 0
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # files are run side by side

    def run(self, count: int) -> None:
        """Run all tests, or until too many have failed."""
        try:
            for _ in range(count):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    self._take(self._workers[connection])
        except BaseException:
            self._interrupt()
            raise

    def _start(self) -> None:
        ours, theirs = Pipe()
        name = f"w{self._started}"
        self._started += 1
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: numpy has threads, which survive it
            pid = os.fork()
        if not pid:
            for each in (ours, *self._workers):
                each.close()
            _work(self._session, name, theirs)
        theirs.close()
        self._workers[ours] = _Worker(name, pid, ours)

    def _take(self, worker: _Worker) -> None:
        """Take one message of a worker."""
        try:
            kind, content = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._lost(worker)
            return
        getattr(self, f"_take_{kind}")(worker, content)

    def _take_asked(self, worker: _Worker, _: None) -> None:
        worker.group = self._groups.popleft() if self._groups else range(0)
        with suppress(ConnectionError):  # it has died; that is read next
            worker.connection.send(worker.group)

    def _take_started(self, worker: _Worker, index: int) -> None:
        worker.running = index
        worker.group = range(index + 1, worker.group.stop)
        item = self._session.items[index]
        self._config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)

    def _take_finished(self, worker: _Worker, index: int) -> None:
        worker.running = None
        item = self._session.items[index]
        self._config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _take_report(self, worker: _Worker, data: dict[str, Any]) -> None:
        self._log(worker, self._config.hook.pytest_report_from_serializable(config=self._config, data=data))

    def _log(self, worker: _Worker, report: Any) -> None:
        report.node = worker
        self._config.hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            self._groups.clear()
            for each in self._workers.values():
                with suppress(ConnectionError):
                    each.connection.send(None)

    def _take_warning(self, worker: _Worker, warning: dict[str, Any]) -> None:
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=warning)

    def _take_error(self, worker: _Worker, text: str) -> None:
        """A worker ends with an error of pytest or of a plugin."""
        raise RuntimeError(f"in {worker.name}: {text}")

    def _take_ended(self, worker: _Worker, output: dict[str, Any]) -> None:
        self._config.hook.pytest_worker_ended(config=self._config, output=output)
        self._forget(worker)

    def _forget(self, worker: _Worker) -> int:
        del self._workers[worker.connection]
        worker.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])

    def _lost(self, worker: _Worker) -> None:
        """Report the test that a worker has died with, and have the rest of its tests run by another one."""
        code, running = self._forget(worker), worker.running
        if running is not None:
            item = self._session.items[running]
            text = f"worker {worker.name} has ended with {code} while it ran {item.nodeid}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
            self._log(worker, report)
            self._take_finished(worker, running)
        if worker.group and not self._session.shouldfail:
            self._groups.appendleft(worker.group)
        if self._groups:
            self._start()

    def _interrupt(self) -> None:
        """Have the workers close what their tests use; a Ctrl-C has reached them too."""
        for worker in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        for connection, worker in list(self._workers.items()):
            with suppress(EOFError, OSError, KeyboardInterrupt):
                while connection.poll(END_SECONDS) and connection.recv()[0] != "ended":
                    pass
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            self._forget(worker)


def _work(session: pytest.Session, name: str, parent: "Connection[Any, Any]") -> None:
    """Run tests in a forked process, and end it."""
    config = session.config
    try:
        _begin(config, name)
        config.pluginmanager.register(_Reporter(config, parent), "worker-reporter")
        config.hook.pytest_worker_start(config=config)
        with suppress(KeyboardInterrupt):
            _run_groups(session, parent)
        output: dict[str, Any] = {}
        config.hook.pytest_worker_end(config=config, output=output)
        atexit._run_exitfuncs()
        parent.send(("ended", output))
    except BaseException:
        with suppress(OSError):
            parent.send(("error", traceback.format_exc()))
    finally:
        os._exit(0)


def _begin(config: Any, name: str) -> None:
    """Part a forked process from its parent: captured output, the folder for temporary files, the terminal."""
    os.environ[WORKER] = name
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    folders = config._tmp_path_factory
    folders._basetemp = folders.getbasetemp() / name
    folders._basetemp.mkdir(mode=0o700)
    folders._exit_stack = ExitStack()  # what the parent does at its end
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Terminal(), "terminalreporter")


class _Terminal:
    """The terminal of a worker is the captured output: pytest-timeout writes the stacks of threads to it."""

    def __init__(self) -> None:
        self._tw = TerminalWriter(sys.stderr)


def _run_groups(session: Any, parent: "Connection[Any, Any]") -> None:
    """Run a group after the other, and close what lives as long as the worker."""
    item = None
    try:
        while group := _ask(session, parent):
            for index in group:
                parent.send(("started", index))
                item = session.items[index]
                following = session.items[index + 1] if index != group[-1] else session  # which is left open, as yet
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                parent.send(("finished", index))
                if session.shouldfail or session.shouldstop or (parent.poll() and parent.recv() is None):
                    return
    finally:
        if item is not None:
            _close(session, item)


def _ask(session: Any, parent: "Connection[Any, Any]") -> Any:
    """The next group; none when there is nothing left to do."""
    parent.send(("asked", None))
    while (group := parent.recv()) is None:
        session.shouldstop = "another worker has stopped"
    return group


def _close(session: Any, last: pytest.Item) -> None:
    """End the fixtures that are left; an error is one of the last test."""
    call = pytest.CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), "teardown")
    if call.excinfo is not None:
        report = pytest.TestReport.from_item_and_call(last, call)
        session.config.hook.pytest_runtest_logreport(report=report)


class _Reporter:
    """Sends to the parent what pytest reports in a worker."""

    def __init__(self, config: pytest.Config, parent: "Connection[Any, Any]") -> None:
        self._config, self._parent = config, parent

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._parent.send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        """Send a warning; its source, and arguments of its class, may not be picklable."""
        plain = warnings.WarningMessage(
            str(warning_message.message), warning_message.category, warning_message.filename, warning_message.lineno
        )
        send: Callable[[Any], None] = self._parent.send
        content = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
        try:
            send(("warning", content))
        except Exception:  # a category that only the test knows
            plain.category = UserWarning
            send(("warning", content))
