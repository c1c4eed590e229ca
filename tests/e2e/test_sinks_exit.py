"""The end of a program takes no longer than its bound, whatever its destinations do."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Python
from tests.e2e.test_sinks_delivery import shippers
from tests.sinks.faults import Relay, blackhole, refused, silent
from tests.sinks.servers import Reply, http_date, running

pytest.importorskip("opentelemetry.proto")
pytest.importorskip("grpc")

BOUND = 1.0
SLACK = 4.0
"""For a busy machine; `make bench ARGS="--only exit"` measures it with half a second."""
TRAIN = """
    import time, stepscope
    run = stepscope.init(capture_logs=False, otel=False)
    for step in range(2000):
        run.log({"loss": 0.5}, step=step, category="trainer")
    run.flush()
    time.sleep(0.2)
    print(time.monotonic(), flush=True)
    left = run.finish()
    assert left and (left.undelivered is None or left.undelivered >= 0)
"""
Address = Iterator[str]


@contextlib.contextmanager
def answering(make: Callable[[], Reply]) -> Address:
    """A server that always answers so."""
    with running() as server:
        server.always = make()
        yield server.url


@contextlib.contextmanager
def relayed(*, delay: float = 0.0, cut: int | None = None) -> Address:
    """A server far away, or whose answers are cut."""
    with running() as server:
        relay = Relay(int(server.url.rpartition(":")[2]), delay=delay, cut=cut)
        try:
            yield f"http://127.0.0.1:{relay.port}"
        finally:
            relay.stop()


@contextlib.contextmanager
def at(port: Callable[[], contextlib.AbstractContextManager[int]], scheme: str = "http") -> Address:
    """A port without a listener."""
    with port() as number:
        yield f"{scheme}://127.0.0.1:{number}"


FAULTS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "refused": lambda: at(refused),
    "blackhole": lambda: at(blackhole),
    "silent": lambda: at(silent),
    "tls hang": lambda: at(silent, "https"),
    "dns": lambda: contextlib.nullcontext("http://no-such-host.invalid:4318"),
    "slow": lambda: relayed(delay=0.2),
    "cut": lambda: relayed(cut=12),
    "drips": lambda: answering(lambda: Reply(drip=True)),
    "429 seconds": lambda: answering(lambda: Reply(429, {"Retry-After": "120"})),
    "429 date": lambda: answering(lambda: Reply(429, {"Retry-After": http_date(120)})),
    "500": lambda: answering(lambda: Reply(500)),
    "503": lambda: answering(lambda: Reply(503)),
    "413": lambda: answering(lambda: Reply(413)),
    "302": lambda: answering(lambda: Reply(302, {"Location": "/login"})),
}


@pytest.fixture
def ends(home: Path) -> Iterator[None]:
    """Kill the shippers that go on trying."""
    yield
    for pid in shippers(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("shipper", ["process", "thread"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_exit_is_bounded(python: Python, fault: str, shipper: str, ends: None) -> None:
    """With OTLP over HTTP and gRPC and a hub all failing, the program ends in time and successfully."""
    with FAULTS[fault]() as address:
        grpc = {"endpoint": address, "protocol": "grpc"}
        sinks = [{"otlp": {"endpoint": address}}, {"otlp": grpc}, {"hub": {"url": address}}]
        env = {
            "STEPSCOPE_SINKS": json.dumps(sinks),
            "STEPSCOPE_SHIPPER": shipper,
            "STEPSCOPE_QUIET": "1",
            "STEPSCOPE_EXIT_TIMEOUT": str(BOUND),
        }
        done = python(TRAIN, env=env)
        took = time.monotonic() - float(done.stdout)
        assert (done.returncode, done.stderr) == (0, "")
        assert took < BOUND + SLACK
