"""Run pytest, and say by name which of the failed tests pass alone: `python tools/retest.py ARGUMENTS OF PYTEST`.

CI runs tests beside each other on a busy machine. A test that fails there and passes alone is a wrong test: it is
named, and more than a few of them fail the run. Those in tests/flaky.txt are known and not counted; the list may only
get shorter.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KNOWN = ROOT / "tests" / "flaky.txt"
MAX_FLAKY = 3
"""Tests beyond those of the list that may fail first and pass alone."""
MAX_AGAIN = 20
"""Failed tests that are run again; with more, the failure is not one of single tests."""
RECORD = "STEPSCOPE_RETEST_RECORD"
"""The variable that names the file for the failed tests, read by the plugin in pytest's process."""
_SUMMARY = re.compile(r"\b\d+ (?:passed|failed|errors?|skipped|deselected|xfailed)\b.* in \d+[.:]\d")
_TAIL = 100_000


def names(path: Path) -> list[str]:
    """Read the names of a list; lines with # are comments."""
    if not path.exists():
        return []
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def judge(failed: Sequence[str], again: Sequence[str], known: Sequence[str]) -> tuple[list[str], int]:
    """Return what to say, and the exit status, of tests that failed first and tests that failed alone too."""
    flaky = [name for name in failed if name not in again]
    new = [name for name in flaky if name not in known]
    said = [f"retest: {len(flaky)} of {len(failed)} failed tests passed alone"]
    said += [f"retest: passed alone: {name}{'' if name in new else ' (known)'}" for name in flaky]
    said += [f"retest: failed alone too: {name}" for name in again]
    if len(new) > MAX_FLAKY:
        said.append(f"retest: {len(new)} tests passed only alone, {MAX_FLAKY} may: they wait for a time, not an event")
    return said, 1 if again or len(new) > MAX_FLAKY else 0


def main(arguments: Sequence[str], known: Path = KNOWN) -> int:
    """Run pytest with these arguments, run what failed again, alone, and close with pytest's own summaries."""
    status, failed, summary = _run(arguments)
    if status != 1 or not failed:
        return status
    if len(failed) > MAX_AGAIN:
        print(f"retest: {len(failed)} tests failed, more than {MAX_AGAIN} are not run again", flush=True)
        return status
    second, again, alone = _run(["-n0", "-p", "no:cacheprovider", *failed])
    if second not in (0, 1):  # nothing is known about the tests then
        again = failed
    said, status = judge(failed, again, names(known))
    print("\n".join([*said, f"all: {summary}", f"alone: {alone}"]), flush=True)
    return status


def _run(arguments: Sequence[str]) -> tuple[int, list[str], str]:
    """Run pytest; its exit status, the failed tests, and its summary."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "failed.json"
        line = [sys.executable, "-m", "pytest", "-p", "tools.retest", *arguments]
        env = {**os.environ, RECORD: str(record)}
        tail = b""
        with subprocess.Popen(line, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while part := os.read(process.stdout.fileno(), 65_536):
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
                tail = (tail + part)[-_TAIL:]
        failed = json.loads(record.read_text()) if record.exists() else []
    lines = [line for line in tail.decode("utf-8", "replace").splitlines() if _SUMMARY.search(line)]
    return process.returncode, failed, lines[-1].strip() if lines else "no summary"


class Recorder:
    """Notes the names of failed tests and modules, and writes them at the end; with workers, in their parent only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a test whose set-up, call or end failed."""
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: Any) -> None:
        """Note a module that cannot be collected."""
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        """Write the names."""
        self._path.write_text(json.dumps(list(self._failed)))


def pytest_configure(config: Any) -> None:
    """Record failures where a run was started by this tool; tests that start pytest themselves are not recorded."""
    path = os.environ.pop(RECORD, "")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)), "retest-recorder")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
