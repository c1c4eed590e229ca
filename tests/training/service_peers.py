"""Real peers of a service: a Redis server and a Ray cluster of this machine."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A private Redis server; skips the test by name if it is not installed."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not installed")
    folder = tmp_path_factory.mktemp("redis")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(300)


def _wait_for(port: int) -> None:
    def accepts() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(accepts)


def python_path() -> str:
    """Where workers find the example and these tests."""
    return os.pathsep.join((str(EXAMPLES), str(EXAMPLES.parent)))
