"""The Graphite sink: one line for each value of a metric."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepscope.extend.sink import convert
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Metric


class Graphite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address of the server, and the first part of all paths."""

    host: str = "127.0.0.1"
    port: int = 2003
    prefix: str = "stepscope"
    timeout: float = 10.0

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Graphite":
        """Read options."""
        return convert("graphite", options, cls)

    @property
    def place(self) -> str:
        """The server's address."""
        return f"{self.host}:{self.port}"

    @property
    def remote(self) -> bool:
        """True: the shipper delivers to it."""
        return True

    def open(self) -> "GraphiteSink":
        """Make the sink."""
        return GraphiteSink(self)


class GraphiteSink:
    """Sends lines on one connection. The protocol has no acknowledgement: what was sent counts as written."""

    divisible = True

    def __init__(self, config: Graphite) -> None:
        self._config = config
        self._socket: socket.socket | None = None

    def write(self, batches: Sequence[Batch]) -> None:
        """Send the numbers of metrics; Retry when the server cannot be reached."""
        lines = "".join(line for batch in batches for line in self._lines(batch))
        try:
            if self._socket is None:
                place = (self._config.host, self._config.port)
                self._socket = socket.create_connection(place, timeout=self._config.timeout)
            self._socket.sendall(lines.encode())
        except OSError as error:
            self.close()
            raise Retry(f"{self._config.place}: {error.strerror or error}", after=1.0) from error

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _lines(self, batch: Batch) -> Iterator[str]:
        front = f"{self._config.prefix}.{batch.writer.run}.{batch.writer.rank}"
        for record in batch.records:
            if not isinstance(record, Metric):
                continue
            category = f"{record.category}." if record.category else ""
            for key, value in record.values.items():
                if isinstance(value, int | float):
                    path = f"{front}.{category}{key}".replace("/", ".").replace(" ", "_")
                    yield f"{path} {value!r} {record.time // 10**9}\n"
