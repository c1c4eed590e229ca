"""The Graphite listener: a TCP port that takes `path value timestamp` lines."""

import asyncio
import math
import time
from collections import Counter

from stepscope.extend.receiver import Ingest, Limits, ListenerOptions, ListenerPorts, Upload, Writers
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Record

MAX_LINE_BYTES = 4096
MAX_LINES = 5000
"""Lines that are submitted at once."""
BAD_LINE = "a line that is not `path value timestamp`"
_WRITER = Writer(id="graphite", run="graphite", project="graphite")


class GraphiteListener:
    """Takes lines; those that cannot be read are counted and skipped."""

    def __init__(self, options: ListenerOptions) -> None:
        self._host, self._asked = options.host, options.values.get("graphite-port")
        self._server: asyncio.Server | None = None
        self._ingest: Ingest | None = None

    def bind(self) -> None:
        """Nothing: asyncio takes the port when it starts."""

    def open(self, ports: ListenerPorts, limits: Limits) -> None:
        """Keep the way into the hub's journal."""
        self._ingest = ports.ingest("graphite")
        self._writers = Writers(self._ingest)

    async def start(self) -> None:
        """Start listening, where a port is given."""
        if self._asked is not None:
            self._server = await asyncio.start_server(self._take, self._host, self._asked, limit=MAX_LINE_BYTES)

    @property
    def shown(self) -> str:
        """The port."""
        return f"Graphite on port {self._server.sockets[0].getsockname()[1]}" if self._server is not None else ""

    async def stop(self, seconds: float) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Nothing is left to close."""

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read lines until the client leaves, and journal what has arrived."""
        records: list[Record] = []
        rejected: Counter[str] = Counter()
        try:
            while line := await reader.readline():
                found = read_line(line)
                if found is None:
                    rejected[BAD_LINE] += 1
                else:
                    records.append(found)
                if len(records) >= MAX_LINES:
                    self._submit(records, rejected)
                    records, rejected = [], Counter()
        except ValueError:  # a line without an end
            rejected[BAD_LINE] += 1
        finally:
            self._submit(records, rejected)
            writer.close()

    def _submit(self, records: list[Record], rejected: "Counter[str]") -> None:
        assert self._ingest is not None
        upload = Upload()
        upload.rejected += rejected
        if records:
            self._writers.add(upload, _WRITER, records, None)
        self._ingest.submit(upload)


def read_line(line: bytes) -> Metric | None:
    """Read one value; None for anything else."""
    parts = line.split()
    try:
        path, value, at = parts[0].decode(), float(parts[1]), float(parts[2])
    except (IndexError, ValueError):
        return None
    if len(parts) != 3 or not math.isfinite(at):
        return None
    moment = time.time_ns() if at < 0 else int(at * 10**9)
    return Metric(moment, None, None, None, {path.replace(".", "/"): value})
