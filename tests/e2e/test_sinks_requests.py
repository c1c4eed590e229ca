"""What a run wants delivered is noted before its first record is safe, and what is not delivered is shown."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.sdk.shipping.sink_requests import list_requests
from tests.conftest import PACKAGE, Start
from tests.e2e.test_sinks_delivery import shippers
from tests.repeats import repeats
from tests.sinks.servers import running

pytest.importorskip("opentelemetry.proto")

KILLS = repeats(2, 20)

# Dies as soon as its journal has a record. Switching threads often lets the flusher run while `init` still does.
KILLED = """
    import os, signal, sys, threading
    sys.setswitchinterval(1e-6)
    from pathlib import Path
    import stepscope
    from stepscope.testing import read_run

    home = Path(os.environ["STEPSCOPE_HOME"])

    def watch():
        while True:
            try:
                if next(iter(read_run(home, os.environ["STEPSCOPE_RUN_ID"])), None):
                    os.kill(os.getpid(), signal.SIGKILL)
            except OSError:
                pass

    threading.Thread(target=watch, daemon=True).start()
    run = stepscope.init(otel=False, shipper=sys.argv[1])
    for step in range(100_000_000):
        run.log({"loss": 0.5}, step=step)
"""


def stepscope(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of this package."""
    env = {**os.environ, "STEPSCOPE_HOME": str(home), "PYTHONPATH": str(PACKAGE)}
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *words], env=env, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def no_shippers(home: Path) -> Any:
    """Kill the shippers of the home afterwards."""
    yield
    for pid in shippers(home):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("shipper", ["process", "thread"])
def test_a_run_killed_with_its_first_record_is_delivered(start: Start, tmp_path: Path, shipper: str) -> None:
    """Its request is there when the first record is, `ship --status` and `doctor` name it, and `ship` delivers it."""
    for turn in range(KILLS):
        with running() as server:
            home = tmp_path / f"{shipper}{turn}"
            setting = json.dumps([{"otlp": {"endpoint": server.url, "include": ["*"]}}])
            env = {"STEPSCOPE_HOME": str(home), "STEPSCOPE_SINKS": setting, "STEPSCOPE_RUN_ID": "early"}
            assert start(KILLED, shipper, env=env).wait().returncode == -signal.SIGKILL
            for pid in shippers(home):
                os.kill(pid, signal.SIGKILL)
            assert [request.run for request in list_requests(home)] == ["early"]
            shown = stepscope(home, "ship", "--status")
            if shown.returncode:  # a shipper may have been quick
                assert "run early" in shown.stdout, shown.stdout + shown.stderr
                assert "no shipper is running" in shown.stdout
                assert "no shipper is running" in stepscope(home, "doctor").stdout
            delivered = stepscope(home, "ship", "--timeout", "120")
            assert delivered.returncode == 0, delivered.stdout + delivered.stderr
            assert "nothing to do" not in delivered.stdout
            assert server.requests
            assert stepscope(home, "ship", "--status").returncode == 0


def test_a_shipper_that_goes_on_is_announced_and_named(
    start: Start, home: Path, until: Callable[..., None], no_shippers: None
) -> None:
    """The end of a run says that a process goes on, which, and for how long; `ship --status` and `doctor` name it."""
    program = """
        import stepscope
        run = stepscope.init(otel=False, exit_timeout=3)
        run.log({"loss": 0.5})
        run.finish()
    """
    env = {"STEPSCOPE_SINKS": json.dumps([{"otlp": {"endpoint": "http://127.0.0.1:9", "include": ["*"]}}])}
    ended = start(program, env=env).wait()
    assert "not delivered yet to otlp" in ended.stderr, ended.stderr
    assert "for at most 24 hours" in ended.stderr
    until(lambda: shippers(home))
    (pid,) = shippers(home)
    until(lambda: f"process {pid} keeps trying until" in stepscope(home, "ship", "--status").stdout)
    shown = json.loads(stepscope(home, "ship", "--status", "--json").stdout)
    assert list(shown["shippers"].values()) == [pid]
    assert [each["shipper"] for each in shown["pending"]] == [pid]
    assert f"process {pid}" in stepscope(home, "doctor").stdout
