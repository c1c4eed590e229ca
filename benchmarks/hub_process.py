"""A hub in a process of its own: start it, ask it, count what it stored, and what it takes of the machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.spawn import end_group, environment, last_words

_LINE = re.compile(r"stepscope hub: http://([^ ]+):(\d+) .*?\(OTLP/gRPC on port (\d+)\)")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
PROTOBUF = {"content-type": "application/x-protobuf"}


class HubError(Exception):
    """The hub did not do what was asked."""


class HubProcess:
    """A hub on `folder`/home, on free ports of the loopback; close it when done."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.home = folder / "home"
        self._said = (folder / "hub-said").open("w+")
        line = [sys.executable, "-m", "stepscope", "hub", "--port", "0", "--grpc-port", "0"]
        self._process = subprocess.Popen(
            [*line, "--home", str(self.home), *options], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self._said, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline()
        found = _LINE.match(self.said)
        if found is None:
            self.close()
            raise HubError(self.last_words())
        self.port, self.grpc_port = int(found[2]), int(found[3])
        socket = re.search(r"DogStatsD on unixstream://([^\s)]+)", self.said)
        self.dogstatsd = socket[1] if socket else ""
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def request(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> bytes:
        """Send a request on the one connection and return the body of the answer; HubError when it is not 200."""
        try:
            self._connection.request(method, path, body, headers or {})
            response = self._connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if response.status != 200:
            raise HubError(f"{method} {path}: {response.status} {data[:300]!r}")
        return data

    def get(self, path: str) -> Any:
        """Ask the JSON API."""
        return json.loads(self.request("GET", path))

    @contextlib.contextmanager
    def stream(self, path: str) -> Iterator[None]:
        """Keep a stream of events open, and read what comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", path)
        response = connection.getresponse()

        def read() -> None:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
                while response.read1(65536):
                    pass

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            thread.join()
            connection.close()

    def sql(self, statement: str) -> Any:
        """The first value of the first row of an answer."""
        body = json.dumps({"sql": statement, "seconds": 30}).encode()
        answer = json.loads(self.request("POST", "/api/sql", body, {"content-type": "application/json"}))
        return answer["rows"][0][0]

    def stored(self, receiver: str) -> int:
        """How many records of a receiver this process has stored."""
        return int(self.get("/api/health")["receivers"].get(receiver, {}).get("stored", 0))

    def wait_stored(self, receiver: str, wanted: int, limit_s: float, pause_s: float = 0.05) -> list[tuple[float, int]]:
        """Wait until so many records are stored; return when how many were."""
        seen: list[tuple[float, int]] = []
        deadline = time.monotonic() + limit_s
        while True:
            seen.append((time.monotonic(), self.stored(receiver)))
            if seen[-1][1] >= wanted:
                return seen
            if seen[-1][0] > deadline:
                raise HubError(f"{seen[-1][1]} of {wanted} records stored after {limit_s:.0f} s")
            time.sleep(pause_s)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def cpu_s(self) -> float:
        """User and system seconds of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def rss_bytes(self) -> int:
        """Its resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE

    def own_bytes(self) -> int:
        """Its resident memory without the pages of files, such as the engine's code, which come with use."""
        return own_bytes(self.pid)

    def wait_until_idle(self, limit_s: float, slice_s: float = 1.0, busy_share: float = 0.03) -> bool:
        """Wait until it uses next to nothing, merges of the store included; tell whether it came to that."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            before = self.cpu_s()
            time.sleep(slice_s)
            if self.cpu_s() - before < slice_s * busy_share:
                return True
        return False

    def last_words(self) -> str:
        """The last line of what it said on standard error."""
        if self._said.closed:
            return "the hub said nothing"
        self._said.flush()
        self._said.seek(0)
        return last_words(self._said.read())

    def stop(self, limit_s: float = 60.0) -> int:
        """Send SIGTERM and return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(limit_s)
        finally:
            self.close()

    def close(self) -> None:
        """End it at once if it still runs."""
        end_group(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()


def own_bytes(pid: int | str = "self") -> int:
    """The resident memory of a process without the pages of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
