"""Processor time of the tests: `--cpu` names the dearest files, tests and fixtures; all are in build/cpu.json."""

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.left_over import MARK, WORKER

OUTPUT = Path(__file__).parents[1] / "build" / "cpu.json"
SHOWN = 25
"""Lines of each table."""
SCAN_SECONDS = 0.02
"""What ran shorter than this is added to what came after it: looking at all processes takes a few milliseconds."""
_TICKS = os.sysconf("SC_CLK_TCK")
COLLECTION, BETWEEN = "collection and imports", "between tests"


class ProcessTree:
    """This process and all that it started, also what outlived its parent."""

    def __init__(self) -> None:
        self._worker = os.environ.get(WORKER, "")
        self._ours: dict[tuple[int, str], bool] = {}
        self._orphans: dict[tuple[int, str], float] = {}

    def seconds(self) -> float:
        """Processor time that it has used until now."""
        processes = _processes()
        children: dict[int, list[int]] = {}
        for pid, (parent, _, _) in processes.items():
            children.setdefault(parent, []).append(pid)
        self._note_orphans(processes)
        live = [*children.get(os.getpid(), ()), *(pid for pid, _ in self._orphans if pid in processes)]
        for pid in live:
            live += children.get(pid, ())
        for pid in live:
            key = (pid, processes[pid][1])
            if key in self._orphans:
                self._orphans[key] = processes[pid][2]
        outside = {pid for pid, _ in self._orphans}
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(each.ru_utime + each.ru_stime for each in used)
        return own + sum(processes[pid][2] for pid in live if pid not in outside) + sum(self._orphans.values())

    def _note_orphans(self, processes: dict[int, tuple[int, str, float]]) -> None:
        """Find what was started by this process and has lost its parent; what ended since keeps its last time."""
        for pid, (parent, started, _) in processes.items():
            if parent == 1 and (pid, started) not in self._ours:
                ours = self._ours[pid, started] = self._is_ours(pid)
                if ours:
                    self._orphans[pid, started] = 0.0

    def _is_ours(self, pid: int) -> bool:
        try:
            lines = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        marks = (f"{MARK}={os.environ[MARK]}", f"{WORKER}={self._worker}")
        return all(each.encode() in lines for each in marks[: 2 if self._worker else 1])


def _processes() -> dict[int, tuple[int, str, float]]:
    """All processes by their ids: the parent, when it was started, processor time with that of its ended children."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # it has ended
                continue
            found[int(name)] = int(fields[1]), fields[19].decode(), sum(map(int, fields[11:15])) / _TICKS
    return found


def _tables() -> dict[str, Counter[str]]:
    return {name: Counter() for name in ("files", "tests", "fixtures", "uses")}


class Meter:
    """Adds processor time to the file, and the test or fixture, that is running."""

    def __init__(self) -> None:
        self.counted = _tables()
        self._tree = ProcessTree()
        self._before, self._scanned = 0.0, time.monotonic()
        self._test, self._open = COLLECTION, list[str]()

    def count(self, anyway: bool = False) -> None:
        """Add what was spent since the last time to what is running."""
        if anyway or time.monotonic() - self._scanned >= SCAN_SECONDS:
            now = self._tree.seconds()
            # Less than before when a browser was closed: the time of processes that nobody waited for is gone.
            spent, self._before, self._scanned = max(0.0, now - self._before), now, time.monotonic()
            self.counted["files"][self._test.partition("::")[0]] += spent
            table, name = ("fixtures", self._open[-1]) if self._open else ("tests", self._test)
            self.counted[table][name] += spent

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Count what collection took."""
        self.count(anyway=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what a test took with its set-up and its end."""
        self.count()
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self.count()
            self._test = BETWEEN

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Count what a test took before what it used is closed, with which the time of processes may be gone."""
        self.count(anyway=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Count what a fixture took."""
        self.count()
        name = f"{fixturedef.baseid or '.'}::{fixturedef.argname} ({fixturedef.scope})"
        self._open.append(name)
        self.counted["uses"][name] += 1
        try:
            return (yield)
        finally:
            self.count()
            self._open.pop()

    def pytest_worker_start(self) -> None:
        """Begin at nothing in a process that was just forked."""
        self.counted, self._tree, self._before, self._test = _tables(), ProcessTree(), 0.0, BETWEEN

    def pytest_worker_end(self, output: dict[str, Any]) -> None:
        """Send to the parent what a worker has counted."""
        self.count(anyway=True)
        output["cpu"] = self.counted


class Report:
    """Adds up what this process and its workers have counted."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def pytest_worker_ended(self, output: dict[str, Any]) -> None:
        """Take what a worker has counted."""
        for name, table in output["cpu"].items():
            self._meter.counted[name].update(table)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the dearest, and write all."""
        tables = self._meter.counted
        OUTPUT.parent.mkdir(exist_ok=True)
        OUTPUT.write_text(json.dumps(tables, indent=1))
        uses = tables.pop("uses")
        total = sum(tables["files"].values())
        terminalreporter.section(f"processor time: {total:.0f} s")
        for name, table in tables.items():
            terminalreporter.write_line(f"dearest {name}, in seconds:")
            for each, seconds in table.most_common(SHOWN):
                times = f"  x{uses[each]:.0f}" if name == "fixtures" else ""
                terminalreporter.write_line(f"{seconds:9.1f}  {each}{times}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--cpu", action="store_true", help="name the files, tests and fixtures that take most processor time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Count in each process that runs tests, report in the one with the terminal."""
    if config.getoption("--cpu"):
        meter = Meter()
        config.pluginmanager.register(meter, "cpu-meter")
        config.pluginmanager.register(Report(meter), "cpu-report")
