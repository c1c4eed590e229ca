"""A listener for DogStatsD on UDP or a Unix socket, which reads lines by the documented grammar."""

import contextlib
import re
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Sink

METRIC = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.]*):(?P<value>[^|]+)\|(?P<type>c|g|ms|h|s|d)"
    r"(\|@(?P<rate>[0-9.e-]+))?(\|#(?P<tags>[^|]*))?(\|T(?P<time>\d+))?"
)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")


class Line(NamedTuple):
    """One metric as the Agent reads it."""

    name: str
    value: str
    type: str
    rate: float
    tags: list[str]
    time: int | None


class Listener:
    """Bound until it is stopped; what it gets is read when asked for."""

    def __init__(self, path: Path | None = None, *, stream: bool = False) -> None:
        kind = socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
        self._socket = socket.socket(socket.AF_UNIX if path else socket.AF_INET, kind)
        self._socket.bind(str(path) if path else ("127.0.0.1", 0))
        self.port = 0 if path else int(self._socket.getsockname()[1])
        if not path:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self._stream = stream
        self._client: socket.socket | None = None
        if stream:
            self._socket.listen(1)
        self.datagrams: list[bytes] = []
        self._rest = b""

    def read(self) -> list[str]:
        """Take what has come, and list all lines so far."""
        if self._stream:
            self._read_stream()
        else:
            self._socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.datagrams.append(self._socket.recv(65536))
        return [line for each in self.datagrams for line in each.decode().split("\n") if line]

    def metrics(self) -> list[Line]:
        """The metrics so far; a line that is none of the grammar's fails the test."""
        found = []
        for line in self.read():
            if line.startswith(("_e{", "_sc|")):
                continue
            match = METRIC.fullmatch(line)
            assert match, f"no DogStatsD: {line}"
            name, value, kind = match["name"], match["value"], match["type"]
            assert kind == "s" or NUMBER.fullmatch(value), f"no number: {line}"
            tags = match["tags"].split(",") if match["tags"] else []
            assert all(tags), f"an empty tag: {line}"
            time = int(match["time"]) if match["time"] else None
            found.append(Line(name, value, kind, float(match["rate"] or 1), tags, time))
        return found

    def steps(self) -> list[int]:
        """What the gauge of the step said."""
        return [int(line.value) for line in self.metrics() if line.name.endswith("train.step")]

    def take(self, sink: Sink, batches: list[Batch]) -> Mapping[str, int]:
        """Offer batches to a sink, and read when it says that we are slow; a queue holds ten datagrams."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            with contextlib.suppress(Retry):
                return sink.write(batches)
            self.read()
        raise AssertionError("five minutes were not enough")

    def stop(self) -> None:
        """Close it."""
        self._socket.close()
        if self._client is not None:
            self._client.close()

    def _read_stream(self) -> None:
        """Read all that came, also over a second connection; half a message at the end of one is lost."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                if self._client is None:
                    self._client, _ = self._socket.accept()
                    self._client.setblocking(False)
                while data := self._client.recv(65536):
                    self._rest += data
                    self._cut()
                self._client.close()
                self._client, self._rest = None, b""

    def _cut(self) -> None:
        while len(self._rest) >= 4:
            (size,) = struct.unpack("<I", self._rest[:4])
            if len(self._rest) < 4 + size:
                return
            self.datagrams.append(self._rest[4 : 4 + size])
            self._rest = self._rest[4 + size :]
