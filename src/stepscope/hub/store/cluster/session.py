"""One connection to a ClickHouse server over its native protocol; columns travel in our own encoding."""

import contextlib
import re
import select
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from clickhouse_driver import Client, errors
from clickhouse_driver.block import BlockInfo
from clickhouse_driver.protocol import ServerPacketTypes
from clickhouse_driver.varint import read_varint

from stepscope.hub.store import columns
from stepscope.hub.store.cluster.address import Address
from stepscope.hub.store.columns import Answer, Block, Columns
from stepscope.hub.store.engine import EngineError, refusal

NETWORK_ERROR = 210
_PLAIN_BLOCKS = 54453
"""The newest revision of the protocol whose blocks are the Native format as it is, without a layout per column."""
_TRACE = re.compile(r"(?:\.? Stack trace:.*|, e\.what\(\) = .*)", re.DOTALL)
Settings = Mapping[str, int | str]


class Session:
    """An open connection, used by one thread at a time."""

    def __init__(self, address: Address, host: tuple[str, int], settings: Settings, *, database: str) -> None:
        self.host = host
        self._client = Client(
            *host,
            database=database,
            user=address.user,
            password=address.password,
            client_name="stepscope",
            connect_timeout=address.connect_timeout,
            send_receive_timeout=address.connect_timeout,  # of the handshake
            secure=address.secure,
            verify=address.verify,
            ca_certs=address.ca or None,
            client_revision=_PLAIN_BLOCKS,
            disable_reconnect=True,
            settings={**settings, "strings_as_bytes": True},
        )
        self._connection = self._client.connection
        with refused(self.host):
            self._connection.connect()
        self._timeout, self._silence = address.timeout, min(address.timeout, address.silence)
        self._connection.socket.settimeout(self._timeout)
        self.version: tuple[int, ...] = self._connection.server_info.version_tuple()

    def execute(self, sql: str, settings: Settings | None = None, *, brief: bool = False) -> None:
        """Run a statement to its end; a server that is silent in a `brief` one has failed as with a SELECT."""
        with refused(self.host), self._patience(self._silence if brief else self._timeout):
            self._send(sql, settings)
            for _ in self._blocks():
                pass

    def query(self, sql: str, settings: Settings | None = None) -> Answer:
        """Return the columns of a SELECT, whose progress a working server reports several times a second."""
        with refused(self.host), self._patience(self._silence):
            self._send(sql, settings)
            return Answer(columns.joined(list(self._blocks())))

    @contextlib.contextmanager
    def _patience(self, seconds: float) -> Iterator[None]:
        """Wait so long for each byte from the server."""
        if self._connection.socket is None:
            raise EOFError("the connection is closed")
        self._connection.socket.settimeout(seconds)
        yield
        self._connection.socket.settimeout(self._timeout)

    def insert(self, table: str, block: Block, settings: Settings | None = None) -> None:
        """Add rows as one block."""
        with refused(self.host), self._patience(self._silence):
            self._send(f"INSERT INTO {table} ({', '.join(block)}) VALUES", settings)
            packets = self._packets()
            next(packets)  # the columns of the table
            self._connection.send_data(columns.encode(block))
            self._connection.send_data(_END)
            for _ in packets:
                pass

    def rows(self, sql: str, settings: Settings, mark: str) -> Iterator[Any]:
        """Yield the names and types of a query's columns, then its rows, with values of any type."""
        with refused(self.host):
            yield from self._client.execute_iter(sql, settings=settings, with_column_types=True, query_id=mark)

    def is_idle(self) -> bool:
        """Return whether the next statement may be sent: the connection is open and nothing is unread."""
        connection = self._connection
        if not connection.connected or connection.is_query_executing:
            return False
        try:
            return not select.select([connection.socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def cut(self) -> None:
        """Stop waiting for the statement under way, from any thread."""
        if (wire := self._connection.socket) is not None:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._client.disconnect()

    def _send(self, sql: str, settings: Settings | None) -> None:
        connection = self._connection
        self._client.make_query_settings(settings)
        connection.is_query_executing = True
        connection.block_in, connection.block_out = _BlockReader(connection.fin), _BlockWriter(connection.fout)
        connection.send_query(sql)
        connection.send_data(_END)

    def _blocks(self) -> Iterator[Columns]:
        return (block for block in self._packets() if block)

    def _packets(self) -> Iterator[Columns]:
        """Yield the blocks of an answer up to its end; what the server refuses is raised."""
        while True:
            packet = self._connection.receive_packet()
            if packet.type == ServerPacketTypes.DATA:
                yield packet.block
            elif packet.type == ServerPacketTypes.EXCEPTION:
                self._connection.is_query_executing = False
                raise packet.exception
            elif packet.type == ServerPacketTypes.END_OF_STREAM:
                return


_END = columns.encode({})
"""A block without columns ends what is sent."""


class _BlockWriter:
    """Writes blocks that are encoded already."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, block: bytes) -> None:
        BlockInfo().write(self._sink)
        self._sink.write(block)
        self._sink.flush()


class _BlockReader:
    """Reads blocks from a connection."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def read(self, use_numpy: object = None) -> Columns:
        BlockInfo().read(self._source)
        return columns.read_block(self)

    def varint(self) -> int:
        return int(read_varint(self._source))

    def take(self, size: int) -> bytes:
        return bytes(self._source.read(size)) if size else b""

    def numbers(self, dtype: str, rows: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * rows), dtype)

    def strings(self, rows: int) -> list[str]:
        found = self._source.read_strings(rows) if rows else ()
        try:
            return list(map(bytes.decode, found))
        except UnicodeDecodeError:
            return [text.decode("utf-8", "replace") for text in found]


@contextlib.contextmanager
def refused(host: tuple[str, int]) -> Iterator[None]:
    """Turn what the driver raises into EngineError."""
    try:
        yield
    except errors.ServerException as error:
        raise refusal(_TRACE.sub("", str(error.message)).removeprefix("DB::Exception: ").strip(), error.code) from None
    except (errors.Error, OSError, EOFError) as error:
        why = str(getattr(error, "message", "") or error) or type(error).__name__
        raise EngineError(f"{host[0]}:{host[1]}: {why}", NETWORK_ERROR) from None
