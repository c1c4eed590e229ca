"""The end of a program takes no longer than its bound, whatever its destinations do."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
"""For a busy machine, beside the time its start took; `make bench ARGS="--only exit"` measures with half a second."""
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
        begun = time.monotonic()
        done = python(TRAIN, env=env)
        ending = float(done.stdout)
        assert (done.returncode, done.stderr) == (0, "")
        assert time.monotonic() - ending < BOUND + SLACK + (ending - begun)


OPENING = """
    import os, ssl, threading, time, stepscope
    kept = ssl.create_default_context()

    def slowly(**given):
        while not os.path.exists("ending"):
            time.sleep(0.01)
        print("read", flush=True)
        return kept

    ssl.create_default_context = slowly
    run = stepscope.init(capture_logs=False, otel=False)
    run.log({"loss": 0.5}, step=1)
    threading.Timer(0.5, lambda: open("ending", "w")).start()
    run.finish()
    print("finished", flush=True)
"""
NONE_LEFT = """
    import threading
    assert [each.name for each in threading.enumerate() if "otlp" in each.name] == []
"""


def over_tls(**options: str) -> dict[str, str]:
    """The environment of a program that delivers in a thread."""
    return {
        "STEPSCOPE_SINKS": json.dumps([{"otlp": options}]),
        "STEPSCOPE_SHIPPER": "thread",
        "STEPSCOPE_QUIET": "1",
        "STEPSCOPE_EXIT_TIMEOUT": str(BOUND),
    }


def test_certificates_are_read_before_python_ends(python: Python) -> None:
    """OpenSSL takes itself down with Python: a thread that was still in it would crash the process."""
    done = python(OPENING, env={**over_tls(endpoint="https://127.0.0.1:9"), "STEPSCOPE_EXIT_TIMEOUT": "0"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\nfinished\n", "")


def test_a_handshake_is_cut_short(python: Python) -> None:
    """A thread that waits for the server's keys has ended when Python ends."""
    with FAULTS["tls hang"]() as address:
        done = python(TRAIN + NONE_LEFT, env=over_tls(endpoint=address))
        assert (done.returncode, done.stderr) == (0, "")


def test_a_request_over_tls_is_cut_short(python: Python, tmp_path: Path) -> None:
    """So has one that waits for an answer."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    files = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*line.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(_first_words, server, context)
            done = python(TRAIN + NONE_LEFT, env=over_tls(endpoint=address, certificate=files[0]))
            assert (done.returncode, done.stderr) == (0, "")
            assert said.result().startswith(b"POST /v1/")


def _first_words(server: socket.socket, context: ssl.SSLContext) -> bytes:
    """Read a request, and answer when the client has gone."""
    client = context.wrap_socket(server.accept()[0], server_side=True)
    with client:
        words = client.recv(64)
        with contextlib.suppress(OSError):
            while client.recv(65536):
                pass
        return words
