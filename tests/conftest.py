"""Real processes for the tests: a temporary home, programs that run in it, and the records they leave."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from opentelemetry import context, metrics

import stepscope
from stepscope.model.ports import Batch
from stepscope.model.records import Record
from stepscope.sdk.context import current_mark
from stepscope.testing import read_batches, read_run
from tests.forked import Forked, ForkedProgram
from tests.lanes import group_of, lane_of, place_of
from tests.shared import close_shared
from tests.waiting import wait_until

pytest_plugins = ("tests.left_over", "tests.workers", "tests.cpu", "tests.dialects.mlflow.server_peer")
RUN = "e2e"
"""The run every program writes to unless its environment says otherwise."""
PACKAGE = Path(stepscope.__file__).parents[1]
_LAUNCHERS = ("STEPSCOPE_", "SLURM_", "OMPI_", "PMI", "OTEL_", "TORCHELASTIC_", "RAY_", "RANK", "WORLD_SIZE")


@dataclass
class Program:
    """A started Python program; its output is in files, so that no child left over keeps a reader waiting."""

    process: "subprocess.Popen[bytes] | Forked"
    place: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def send(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, timeout: float = 300) -> "subprocess.CompletedProcess[str]":
        """Wait for its end; its exit code and output."""
        code = self.process.wait(timeout)
        out, err = ((self.place / name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess(["python", str(self.place / "program.py")], code, out, err)

    def end(self) -> None:
        """Kill what is left of it and of its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()  # it may not have its session yet
        self.process.wait()


Start = Callable[..., Program]
Compared = Callable[[int], None]
Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def compared(record_property: Callable[[str, object], None]) -> Compared:
    """Says how many values or requests a test tries, for tools/promises.py; more of them are added up."""
    return lambda count: record_property("compared", count)


settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


_ENVIRONMENT = dict(os.environ)
_LARGE = {"chdb", "jax", "keras", "lightning", "mlflow", "ray", "tensorflow", "torch", "transformers"}


def pytest_collection_finish() -> None:
    """Refuse imports that are slow or start threads, which no fork has; undo what frameworks set in the environment."""
    if large := _LARGE & sys.modules.keys():
        raise pytest.UsageError(
            f"imported at collection: {', '.join(sorted(large))}; see tests/late.py and tests/chdb.py"
        )
    for name in os.environ.keys() - _ENVIRONMENT.keys():
        if not name.startswith("PYTEST_"):
            del os.environ[name]
    gc.enable()
    gc.collect()
    gc.freeze()  # what was imported stays: no later collection has to walk through it


def pytest_configure() -> None:
    """Let it be interrupted: a shell ignores SIGINT in what it starts with `&`."""
    gc.disable()  # until the tests are collected, of which nothing is garbage
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with its lane, and put first what takes longer: worlds, then lanes."""
    paths = {item: item.nodeid.partition("::")[0] for item in items}
    lanes = {path: lane_of(path) for path in set(paths.values())}
    order = {path: place_of(path) for path in lanes}
    for item, path in paths.items():
        item.add_marker(lanes[path])
    items.sort(key=lambda item: order[paths[item]])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close what the tests of a world share after the last of them."""
    try:
        yield
    finally:
        if nextitem is None or group_of(item.nodeid) != group_of(nextitem.nodeid):
            close_shared()


@pytest.fixture(autouse=True, scope="module")
def outside_any_step() -> Iterator[None]:
    """No step and no span that a test left open is around the records of the next one."""
    yield
    stepscope.finish()
    current_mark.set(None)
    context.attach(context.Context())


@pytest.fixture
def unmetered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that measures itself with the process's OpenTelemetry does not do so in the runs of later tests."""
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home folder of the test's programs; nobody has made it yet."""
    return tmp_path / "home"


@pytest.fixture
def start(tmp_path: Path, home: Path) -> Iterator[Start]:
    """Start a Python program in a session of its own; it dies with the test.

    It is forked from a process that has imported `stepscope`; `fresh` starts an interpreter, as does another module.
    """
    programs: list[Program] = []

    def begin(
        source: str,
        *arguments: object,
        env: dict[str, str | None] | None = None,
        module: str | None = None,
        fresh: bool = False,
    ) -> Program:
        place = tmp_path / f"program{len(programs)}"
        place.mkdir()
        script = place / "program.py"
        script.write_text(textwrap.dedent(source))
        process: subprocess.Popen[bytes] | Forked
        if module or fresh:
            process = _spawn(script, arguments, _environment(home, env or {}), module)
        else:
            process = ForkedProgram(script, [str(each) for each in arguments], _environment(home, env or {}))
        programs.append(Program(process, place))
        return programs[-1]

    yield begin
    for program in programs:
        program.end()


def _spawn(
    script: Path, arguments: Sequence[object], env: dict[str, str], module: str | None
) -> "subprocess.Popen[bytes]":
    line = [sys.executable, *(("-m", module) if module else ()), *map(str, arguments)]
    line.insert(len(line) if module else 1, str(script))
    with open(script.parent / "out", "w") as out, open(script.parent / "err", "w") as err:
        return subprocess.Popen(
            line,
            cwd=script.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _environment(home: Path, changes: dict[str, str | None]) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(_LAUNCHERS)}
    ours: dict[str, str | None] = {
        "PYTHONPATH": str(PACKAGE),
        "PYTHONWARNINGS": "ignore:This process:DeprecationWarning",  # of Python 3.12, at each fork beside a thread
        "STEPSCOPE_HOME": str(home),
        "STEPSCOPE_RUN_ID": RUN,
        "STEPSCOPE_PROBES": "0",
    }
    return {key: value for key, value in {**inherited, **ours, **changes}.items() if value is not None}


@pytest.fixture
def python(start: Start) -> Python:
    """Run a Python program to its end."""

    def run(
        source: str,
        *arguments: object,
        env: dict[str, str | None] | None = None,
        timeout: float = 300,
        fresh: bool = False,
    ) -> "subprocess.CompletedProcess[str]":
        return start(source, *arguments, env=env, fresh=fresh).wait(timeout)

    return run


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait until something is true; the test fails when that takes longer than its deadline."""
    return wait_until


@pytest.fixture
def records(home: Path) -> Callable[..., list[Record]]:
    """Read back what a run recorded, of the given types."""

    def read_back(*kinds: type, run: str = RUN, home: Path = home) -> list[Record]:
        return [record for record in read_run(home, run) if not kinds or isinstance(record, kinds)]

    return read_back


@pytest.fixture
def batches(home: Path) -> Callable[..., list[Batch]]:
    """Read back what a run recorded, batch by batch, each with its writer."""

    def read_back(run: str = RUN, home: Path = home) -> list[Batch]:
        return read_batches(home, run)

    return read_back
