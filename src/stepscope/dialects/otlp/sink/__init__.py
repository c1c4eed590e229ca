"""The OTLP sink: traces, metrics and logs to any OpenTelemetry server, each over HTTP or gRPC."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from stepscope.dialects.otlp.sink.variables import OtlpOptions, Target, targets
from stepscope.extend.sink import (
    BLAMES_A_RECORD,
    OWN_RECORDS,
    RETRYABLE,
    SERVER_ERROR,
    Answer,
    Connection,
    Delivery,
    compress,
    convert,
    not_from,
    retry_after,
    without_secrets,
)
from stepscope.model.errors import ConfigError, Reject, Retry, ServerError
from stepscope.model.ports import Batch
from stepscope.wire.otlp.encode.encode_request import OPEN_SPAN, Request, encode
from stepscope.wire.otlp.encode.metric_points import Temporality
from stepscope.wire.otlp.names import CONTENT_TYPES, Encoding, Signal
from stepscope.wire.otlp.replies import NotOtlp, PartialSuccess, read_http_reply, read_status

AGENT = "Stepscope OTel-OTLP-Exporter-Python/stepscope"


class HttpSend:
    """Transport of one signal over HTTP. Not thread-safe."""

    def __init__(self, target: Target, *, now: Callable[[], float] = time.time) -> None:
        parts = urlsplit(target.url)
        self._target = target
        self._encoding: Encoding = "json" if target.protocol == "http/json" else "protobuf"
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._connection = Connection(target.url, target.tls)
        self._now = now
        self._headers = {"user-agent": AGENT, **target.headers, "content-type": CONTENT_TYPES[self._encoding]}
        if target.gzip:
            self._headers["content-encoding"] = "gzip"

    def __call__(self, request: Request, timeout: float) -> PartialSuccess:
        """Deliver a request."""
        body = request.body
        if self._encoding == "json":
            from stepscope.wire.otlp.encode.to_json import to_json

            body = to_json(request.signal, body)
        if self._target.gzip:
            body = compress(body)
        answer = self._connection.post(self._path, body, self._headers, min(timeout, self._target.timeout))
        if 200 <= answer.status < 300:
            content_type = answer.headers.get("content-type", "")
            try:
                return read_http_reply(request.signal, self._encoding, content_type, answer.body)
            except NotOtlp:
                raise not_from("an OTLP server", answer) from None
        reason = self._reason(answer)
        if answer.status == SERVER_ERROR:
            raise ServerError(reason, request.where, retry_after(answer.headers, self._now))
        if answer.status in RETRYABLE:
            raise Retry(reason, retry_after(answer.headers, self._now))
        raise Reject(reason, request.where, together=answer.status in BLAMES_A_RECORD)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _reason(self, answer: Answer) -> str:
        if 300 <= answer.status < 400:
            return (
                f"HTTP {answer.status}: a redirect to {answer.headers.get('location', 'nowhere')[:200]}, not followed"
            )
        is_json = "json" in answer.headers.get("content-type", "")
        status = read_status("json" if is_json else self._encoding, answer.body)
        return f"HTTP {answer.status}: {status.message[:200]}".rstrip(": ")


Preference = Literal["cumulative", "delta", "lowmemory"]


class Send(Protocol):
    """Transport of one signal."""

    def __call__(self, request: Request, timeout: float) -> PartialSuccess:
        """Deliver a request; Retry, or Reject with the request's own `where`."""

    def close(self) -> None:
        """Close the connection."""


class _Options(OtlpOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    temporality: Preference | None = None
    steps: bool = True


class Otlp(msgspec.Struct, frozen=True, kw_only=True):
    """The targets of the signals, and options for metrics."""

    targets: dict[Signal, Target]
    temporality: Preference = "cumulative"
    steps: bool = True

    remote: ClassVar[bool] = True
    excluded: ClassVar[tuple[str, ...]] = OWN_RECORDS

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Otlp":
        """Read options and OTEL_EXPORTER_OTLP_* variables."""
        given = convert("otlp", options, _Options)
        variable = env.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
        if variable not in ("", "cumulative", "delta", "lowmemory"):
            text = f"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE={variable!r}: use cumulative, delta or lowmemory"
            raise ConfigError(text)
        plain = {name: getattr(given, name) for name in OtlpOptions.__struct_fields__}
        found = targets(OtlpOptions(**plain), env)
        if any(target.protocol == "grpc" for target in found.values()):
            _need_grpc()
        for target in found.values():
            target.tls.check()
        preference = given.temporality or variable or "cumulative"
        return cls(targets=found, temporality=msgspec.convert(preference, Preference), steps=given.steps)

    @property
    def place(self) -> str:
        """The URLs of all signals."""
        return " ".join(without_secrets(target.url) for target in self.targets.values())

    def open(self) -> "OtlpSink":
        """Make the sink."""
        senders = {signal: _sender(signal, target) for signal, target in self.targets.items()}
        # `lowmemory` is delta for counters and histograms, which is what we convert.
        temporality = None if self.temporality == "cumulative" else Temporality("delta")
        timeout = max(target.timeout for target in self.targets.values())
        return OtlpSink(senders, timeout, temporality=temporality, steps=self.steps)


def _need_grpc() -> None:
    try:
        import stepscope.dialects.otlp.sink.grpc_channel  # noqa: F401
    except ImportError:
        raise ConfigError("sinks: otlp over gRPC needs grpcio: pip install grpcio, or use http/protobuf") from None


def _sender(signal: Signal, target: Target) -> Send:
    if target.protocol == "grpc":
        from stepscope.dialects.otlp.sink.grpc_channel import GrpcSend

        return GrpcSend(signal, target)
    return HttpSend(target)


class OtlpSink:
    """Sends records as OTLP requests of at most 4 MiB. Not thread-safe."""

    divisible = True

    def __init__(
        self,
        senders: Mapping[Signal, Send],
        timeout: float,
        *,
        temporality: Temporality | None = None,
        steps: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout = timeout
        self._senders, self._temporality, self._steps = senders, temporality, steps
        self._delivery: Delivery[Request] = Delivery(clock)
        self._metrics_failed = False

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. Open spans are skipped: they are recorded again when they end."""
        delivery = self._delivery
        if delivery.begin(batches, self.timeout):
            self._metrics_failed = False
            pairs = [(batch.writer, batch.records) for batch in batches]
            delivery.parts, skipped = encode(pairs, temporality=self._temporality, steps=self._steps)
            for reason, count in skipped.items():
                if reason != OPEN_SPAN:
                    delivery.refuse(reason, count)
        delivery.send(self._send)
        if self._temporality is not None and not self._metrics_failed:
            self._temporality.commit()
        return delivery.end()

    def close(self) -> None:
        """Close all connections."""
        for send in self._senders.values():
            send.close()

    def _send(self, request: Request, timeout: float) -> None:
        try:
            partial = self._senders[request.signal](request, timeout)
        except ServerError as error:
            self._delivery.fail(error, request.where)
            self._metrics_failed |= request.signal == "metrics"
        except Reject as error:
            self._delivery.reject(str(error), error.where, together=error.together)
        else:
            if partial.rejected >= request.count:
                self._delivery.reject(partial.message or "refused as a whole", request.where, together=False)
            else:
                self._delivery.refuse(partial.message or "partial success", partial.rejected)
