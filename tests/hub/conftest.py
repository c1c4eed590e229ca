"""Real hubs for the tests: a process with ports of its own on a temporary home, and what it stored."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.forked import NORMAL, ForkedHub
from tests.waiting import wait_until

PACKAGE = Path(stepscope.__file__).parents[1]
STEPSCOPE = ("-m", "stepscope")
PROTOBUF, JSON = "application/x-protobuf", "application/json"
_LINE = re.compile(r"stepscope hub: https?://([^ ]+):(\d+) .*?\(OTLP/gRPC on port (\d+)\)")


@dataclass
class Answer:
    """What the hub said."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass
class RunningHub:
    """A hub in a process of its own."""

    home: Path
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    port: int = 0
    grpc_port: int = 0
    said: str = ""
    """The line with which it started."""
    program: tuple[str, ...] = STEPSCOPE
    process: "subprocess.Popen[str] | ForkedHub | None" = None

    def start(self) -> "RunningHub":
        """Start it and wait for its one line; on the same ports when it ran before."""
        arguments = ("--port", str(self.port), "--grpc-port", str(self.grpc_port), *self.arguments)
        script = Path(self.program[0]) if self.program[0].endswith(".py") else None
        if (script or self.program == STEPSCOPE) and all(name.startswith("STEPSCOPE_") for name in self.env):
            self.process = ForkedHub(["--home", str(self.home), *arguments], _environment(self.env), script)
        else:
            self.process = spawn(self.home, *arguments, env=self.env, program=self.program)
        assert self.process.stdout is not None
        line = self.said = self.process.stdout.readline()
        found = _LINE.match(line)
        assert found is not None, f"{line!r} {self.process.stderr.read() if self.process.stderr else ''}"
        self.port, self.grpc_port = int(found[2]), int(found[3])
        return self

    def stop(self, timeout: float = 300) -> int:
        """Send SIGTERM; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._ended(timeout)

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self._ended(10)

    def _ended(self, timeout: float) -> int:
        assert self.process is not None
        code = self.process.wait(timeout)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, path: str, body: bytes, content: str = PROTOBUF, **headers: str) -> Answer:
        """Send a body; underscores in header names mean dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", path, body, {"content-type": content, **named} if content else named)

    def health(self) -> dict[str, Any]:
        """What it says of itself."""
        found: dict[str, Any] = self.request("GET", "/api/health").json()
        return found

    def stored(self, receiver: str) -> int:
        """How many records of a receiver are in the store."""
        return int(self.health()["receivers"].get(receiver, {}).get("stored", 0))

    def wait_stored(self, receiver: str, count: int, seconds: float = 300) -> None:
        """Wait until so many records of a receiver are stored."""
        try:
            wait_until(lambda: self.stored(receiver) >= count, seconds)
        except AssertionError as error:
            raise AssertionError(f"{self.stored(receiver)} of {count} stored: {self.health()}") from error


def spawn(
    home: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = STEPSCOPE,
) -> "subprocess.Popen[str]":
    """Start `stepscope hub`, or another program with its arguments."""
    return subprocess.Popen(
        [sys.executable, *program, "hub", "--home", str(home), *arguments],
        env=_environment(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
    return {**kept, **NORMAL, "PYTHONPATH": str(PACKAGE), **changes}


StartHub = Callable[..., RunningHub]


@pytest.fixture
def start_hub(tmp_path: Path) -> Iterator[StartHub]:
    """Start hubs that die with the test."""
    pytest.importorskip("tests.chdb")
    hubs: list[RunningHub] = []

    def start(*arguments: str, home: Path | None = None, env: dict[str, str] | None = None) -> RunningHub:
        hubs.append(RunningHub(home or tmp_path / "home", arguments, env or {}))
        return hubs[-1].start()

    yield start
    for hub in hubs:
        with contextlib.suppress(Exception):
            hub.kill()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One hub for the tests of a module."""
    pytest.importorskip("tests.chdb")
    running = RunningHub(tmp_path_factory.mktemp("hub") / "home").start()
    yield running
    with contextlib.suppress(Exception):
        running.kill()


def stored_columns(home: Path, sql: str) -> Any:
    """Ask the store of a hub that is not running; columns by name."""
    from stepscope.hub.store.store import open_store

    store = open_store(home / "hub" / "store")
    try:
        return store.engine.query(sql)
    finally:
        store.close()
