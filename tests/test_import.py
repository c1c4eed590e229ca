"""What `import stepscope` imports: nothing that a loop does not need in its first second."""

import json
import subprocess
import sys

import pytest

from tests.conftest import PACKAGE

MAX_OURS = (5, 48)
MAX_MODULES = (30, 155)
"""Modules of the import, and with the first steps of a run; in all for Python 3.11, since the standard library of other
versions has other modules. msgspec and OpenTelemetry's API alone are 89."""
LATER = {
    *(
        "array",
        "asyncio",
        "base64",
        "bz2",
        "csv",
        "ctypes",
        "difflib",
        "email",
        "fractions",
        "hashlib",
        "heapq",
        "html",
        "http",
        "importlib.metadata",
        "json",
        "lzma",
        "multiprocessing",
        "queue",
        "select",
        "selectors",
        "shutil",
        "socket",
        "sqlite3",
        "ssl",
        "statistics",
        "subprocess",
        "tempfile",
        "unittest",
        "urllib.request",
        "numpy",
        "torch",
    ),
    *(
        "stepscope.alerts",
        "stepscope.cli",
        "stepscope.diagnosis",
        "stepscope.hub",
        "stepscope.journal.key_summary",
        "stepscope.journal.quarantine",
        "stepscope.journal.run_edits",
        "stepscope.journal.run_summary",
        "stepscope.model.states",
        "stepscope.sdk.console",
        "stepscope.sdk.run_display",
        "stepscope.sinks",
    ),
}
_LOOP = """
import sys
before = set(sys.modules)
import stepscope
imported = sorted(set(sys.modules) - before)
run = stepscope.init(project="p", otel=False, probes=False)
for step in range(3):
    with run.step(step), run.span("forward"):
        run.log({"loss": 1.0, "tokens": 5})
run.flush()
loaded = sorted(set(sys.modules) - before)
import json
print(json.dumps([imported, loaded]))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The modules of the import alone, and of a short loop, in a new interpreter."""
    home = str(tmp_path_factory.mktemp("home"))
    env = {"PYTHONPATH": str(PACKAGE), "STEPSCOPE_HOME": home, "PATH": "/usr/bin:/bin"}
    found = subprocess.run([sys.executable, "-c", _LOOP], env=env, capture_output=True, text=True, check=True)
    lists: list[list[str]] = json.loads(found.stdout)
    return lists


@pytest.mark.parametrize("at", [0, 1], ids=["import", "loop"])
def test_number_of_modules(imported: list[list[str]], at: int) -> None:
    """The number of modules only shrinks."""
    ours = [name for name in imported[at] if name.partition(".")[0] == "stepscope"]
    assert len(ours) <= MAX_OURS[at], ours
    if sys.version_info[:2] == (3, 11):
        assert len(imported[at]) <= MAX_MODULES[at], imported[at]


def test_what_a_run_needs_comes_with_it(imported: list[list[str]]) -> None:
    """The import alone, in a program that never starts a run, brings neither dependency."""
    assert {"msgspec", "opentelemetry"}.isdisjoint(imported[0])


def test_every_public_name_is_there() -> None:
    """Names that are imported on use are found by `from stepscope import`, `dir` and `*`, and others are not."""
    code = """
import stepscope
assert set(stepscope.__all__) <= set(dir(stepscope))
from stepscope import *
assert Run is stepscope.Run and Span is stepscope.Span and callable(traced) and callable(read)
assert not hasattr(stepscope, "runs")
"""
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(PACKAGE)}, check=True)


@pytest.mark.parametrize("at", [0, 1], ids=["import", "loop"])
def test_what_is_imported_later(imported: list[list[str]], at: int) -> None:
    """Neither the import nor a loop brings what only displays, sinks, the hub or the command line need."""
    assert LATER.isdisjoint(imported[at])
