"""OTLP over gRPC: raw bytes through grpcio, codes read as the specification has them, but a wrong token waits."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

from stepscope.dialects.otlp.sink.variables import Target
from stepscope.extend.sink import Tls, is_here
from stepscope.model.errors import ConfigError, Reject, Retry, ServerError
from stepscope.wire.otlp.encode.encode_request import Request
from stepscope.wire.otlp.names import GRPC_METHODS, Signal
from stepscope.wire.otlp.replies import NotOtlp, PartialSuccess, read_reply, read_status

_RETRYABLE = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
        # Not in the specification: these are about the credentials, not the records.
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_SERVER_ERRORS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})
"""Not retryable in the specification: but servers answer so when their disk or database fails, whatever was sent."""
_BLAMES_A_RECORD = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED})


class GrpcSend:
    """Transport of one signal over gRPC. Not thread-safe."""

    def __init__(self, signal: Signal, target: Target) -> None:
        self._target = target
        self._channel = _channel(target)
        self._export: Any = self._channel.unary_unary(GRPC_METHODS[signal])
        self._metadata = tuple(target.headers.items())

    def __call__(self, request: Request, timeout: float) -> PartialSuccess:
        """Deliver a request."""
        compression = grpc.Compression.Gzip if self._target.gzip else None
        try:
            body: bytes = self._export(
                request.body,
                timeout=min(timeout, self._target.timeout),
                metadata=self._metadata,
                compression=compression,
            )
        except grpc.RpcError as error:
            raise _refusal(error, request) from error
        try:
            return read_reply(request.signal, "protobuf", body)
        except NotOtlp as error:
            raise Retry(f"gRPC OK, but the response is not from an OTLP server ({error}): check the address") from None

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _refusal(error: Any, request: Request) -> Retry | Reject:
    code = error.code()
    trailing = dict(error.trailing_metadata() or ())
    status = read_status("protobuf", trailing.get("grpc-status-details-bin", b""))
    reason = f"gRPC {code.name}: {str(error.details() or status.message)[:200]}"
    throttled = code is grpc.StatusCode.RESOURCE_EXHAUSTED and status.retry_after is not None
    if code in _SERVER_ERRORS:
        return ServerError(reason, request.where, status.retry_after)
    if code in _RETRYABLE or throttled:
        return Retry(reason, status.retry_after)
    return Reject(reason, request.where, together=code in _BLAMES_A_RECORD)


def _channel(target: Target) -> Any:
    parts = urlsplit(target.url)
    host = parts.netloc.rpartition("@")[2]
    address = host if parts.port else f"{host}:{443 if parts.scheme == 'https' else 80}"
    # Its own connection for each, and a first try at once after an outage: the pump does the waiting.
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
    if is_here(
        parts.hostname or ""
    ):  # gRPC reads the proxy variables itself, but would ask a proxy for this machine too
        options.append(("grpc.enable_http_proxy", 0))
    if parts.scheme == "http":
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, _credentials(target.tls), options)


def _credentials(tls: Tls) -> Any:
    try:
        root, key, chain = (
            Path(name).read_bytes() if name else None
            for name in (tls.certificate, tls.client_key, tls.client_certificate)
        )
    except OSError as error:
        raise ConfigError(f"TLS file {error.filename} cannot be read: {error.strerror}") from None
    return grpc.ssl_channel_credentials(root, key, chain)
