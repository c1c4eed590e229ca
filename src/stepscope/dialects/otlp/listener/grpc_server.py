"""OTLP over gRPC: the three Export services on one port, on the event loop of the hub."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc

from stepscope.dialects.otlp.listener.eviction import Eviction
from stepscope.dialects.otlp.receiver import OtlpReceiver, Taken, rpc_code
from stepscope.extend.receiver import Access, Guard, Limits, Refusal, Refused, Workers, bearer, parse, written
from stepscope.model.errors import ConfigError, Retry
from stepscope.wire.otlp.names import GRPC_METHODS, Signal
from stepscope.wire.otlp.replies import BadRequest, Status, write_reply, write_status

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_UNARY = grpc.unary_unary_rpc_method_handler
_MAX_CALLS = 64
"""The limit of concurrent calls on all connections; each may hold a message in memory."""
_IDLE_SECONDS, _AGE_SECONDS, _GRACE_SECONDS = 120, 3600, 60


def _options(limits: Limits) -> list[tuple[str, int]]:
    """Options that limit messages, metadata, calls, and silent, idle, dead or old connections."""
    return [
        ("grpc.max_receive_message_length", limits.body),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.max_concurrent_streams", _MAX_CALLS),
        ("grpc.max_allowed_incoming_connections", limits.grpc_connections),
        ("grpc.server_handshake_timeout_ms", int(limits.header_seconds * 1000)),
        ("grpc.http2.settings_timeout", int(limits.header_seconds * 1000)),
        ("grpc.max_connection_idle_ms", _IDLE_SECONDS * 1000),
        ("grpc.max_connection_age_ms", _AGE_SECONDS * 1000),
        ("grpc.max_connection_age_grace_ms", _GRACE_SECONDS * 1000),
        ("grpc.keepalive_time_ms", _IDLE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", int(limits.header_seconds * 1000)),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ]


class OtlpGrpc:
    """The server of OTLP/gRPC."""

    def __init__(self, receiver: OtlpReceiver, guard: Guard, limits: Limits, workers: Workers) -> None:
        self._receiver = receiver
        self._guard = guard
        self._workers = workers
        self._limits = limits
        self._busy: Counter[int] = Counter()
        """Client ports of running calls."""
        self._evicting: asyncio.Task[None] | None = None
        self._port = 0
        self._server = grpc.aio.server(options=_options(limits), maximum_concurrent_rpcs=_MAX_CALLS)
        self._server.add_generic_rpc_handlers([self._service(signal) for signal in GRPC_METHODS])

    def bind(self, address: str, tls: tuple[Path, Path] | None) -> int:
        """Bind a port; ConfigError when it is in use."""
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                certificate, key = tls
                pair = [(key.read_bytes(), certificate.read_bytes())]
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials(pair))
        except RuntimeError:
            port = 0
        if not port:
            raise ConfigError(
                f"the gRPC address {address} is in use: stop the other process or choose another port with --grpc-port"
            )
        self._port = int(port)
        return self._port

    async def start(self) -> None:
        """Start serving."""
        await self._server.start()
        most = self._limits.grpc_connections * 3 // 4  # leaves room for new connections between checks
        self._evicting = asyncio.create_task(Eviction(self._port, most, self._busy.keys).run())

    async def stop(self, seconds: float) -> None:
        """Finish running calls and stop."""
        if self._evicting is not None:
            self._evicting.cancel()
        await self._server.stop(seconds)

    def _service(self, signal: Signal) -> Any:
        service, _, method = GRPC_METHODS[signal].strip("/").partition("/")
        return grpc.method_handlers_generic_handler(service, {method: _UNARY(self._exporter(signal))})

    def _exporter(self, signal: Signal) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def export(data: bytes, context: Any) -> bytes:
            with self._under_way(context.peer()):
                return await answer(data, context)

        async def answer(data: bytes, context: Any) -> bytes:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
            access = self._guard.admit(bearer(metadata.get("authorization", "")), "ingest")
            if isinstance(access, Refusal):
                return await _refuse(context, access)
            try:
                return await self._export(signal, data, metadata, access)
            except Refused as error:
                return await _refuse(context, error.refusal)
            except BadRequest as error:
                return await _refuse(context, Refusal(HTTPStatus.BAD_REQUEST, str(error)))
            except Retry as error:
                refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), error.after or 5.0)
                return await _refuse(context, refusal)

        return export

    @contextlib.contextmanager
    def _under_way(self, peer: str) -> Iterator[None]:
        """Count a running call; `peer` has the form ipv4:127.0.0.1:4317."""
        port = int(peer.rpartition(":")[2]) if peer.rpartition(":")[2].isdecimal() else 0
        self._busy[port] += 1
        try:
            yield
        finally:
            self._busy[port] -= 1
            if not self._busy[port]:
                del self._busy[port]

    async def _export(self, signal: Signal, data: bytes, metadata: dict[str, str], access: Access) -> bytes:
        def take(data: bytes) -> Taken:
            return self._receiver.take(signal, "protobuf", data, metadata, access)

        taken = await self._workers.run(parse, self._workers, data, take)
        await written(taken.safe)
        return write_reply("protobuf", taken.rejections)


async def _refuse(context: Any, refusal: Refusal) -> bytes:
    """End a call with a code and a retry delay."""
    code = 14 if refusal.retry_after is not None else rpc_code(refusal.status)
    status = Status(code, refusal.message, refusal.retry_after)
    details = (("grpc-status-details-bin", write_status("protobuf", status)),)
    await context.abort(_CODES[code], refusal.message, details)
    raise AssertionError("abort raises")
