"""The OTLP sink: traces, metrics and logs to any OpenTelemetry server, over HTTP or gRPC as each signal wants."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.model.ports import Batch, offer_key
from stepscope.sinks.http import without_secrets
from stepscope.sinks.otlp_variables import OtlpOptions, Target, targets
from stepscope.sinks.record_filter import OWN_RECORDS
from stepscope.sinks.registry import convert
from stepscope.wire.otlp.encode.request import OPEN_SPAN, Request, encode
from stepscope.wire.otlp.encode.temporality import Temporality
from stepscope.wire.otlp.names import Signal
from stepscope.wire.otlp.replies import PartialSuccess

Preference = Literal["cumulative", "delta", "lowmemory"]


class Send(Protocol):
    """One signal's way to its server."""

    def __call__(self, request: Request, timeout: float) -> PartialSuccess:
        """Deliver a request; Retry, or Reject with the request's own `where`."""

    def close(self) -> None:
        """Close the connection."""


class _Options(OtlpOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    temporality: Preference | None = None
    steps: bool = True


class Otlp(msgspec.Struct, frozen=True, kw_only=True):
    """Where each signal goes, and how metrics are spelt."""

    targets: dict[Signal, Target]
    temporality: Preference = "cumulative"
    steps: bool = True

    excluded: ClassVar[tuple[str, ...]] = OWN_RECORDS

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Otlp":
        """Read options and OTEL_EXPORTER_OTLP_* variables."""
        given = convert("otlp", options, _Options)
        said = env.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
        if said not in ("", "cumulative", "delta", "lowmemory"):
            text = f"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE={said!r}: use cumulative, delta or lowmemory"
            raise ConfigError(text)
        plain = {name: getattr(given, name) for name in OtlpOptions.__struct_fields__}
        found = targets(OtlpOptions(**plain), env)
        if any(target.protocol == "grpc" for target in found.values()):
            _need_grpc()
        for target in found.values():
            target.tls.check()
        preference = given.temporality or said or "cumulative"
        return cls(targets=found, temporality=msgspec.convert(preference, Preference), steps=given.steps)

    @property
    def place(self) -> str:
        """The URLs of all signals."""
        return " ".join(without_secrets(target.url) for target in self.targets.values())

    @property
    def remote(self) -> bool:
        """It is served by the shipper."""
        return True

    def open(self) -> "OtlpSink":
        """Make the sink."""
        senders = {signal: _sender(signal, target) for signal, target in self.targets.items()}
        # `lowmemory` is delta for counters and histograms, which is what we convert.
        temporality = None if self.temporality == "cumulative" else Temporality("delta")
        timeout = max(target.timeout for target in self.targets.values())
        return OtlpSink(senders, timeout, temporality=temporality, steps=self.steps)


def _need_grpc() -> None:
    try:
        import stepscope.sinks.otlp_grpc  # noqa: F401
    except ImportError:
        raise ConfigError("sinks: otlp over gRPC needs grpcio: pip install grpcio, or use http/protobuf") from None


def _sender(signal: Signal, target: Target) -> Send:
    if target.protocol == "grpc":
        from stepscope.sinks.otlp_grpc import GrpcSend

        return GrpcSend(signal, target)
    from stepscope.sinks.otlp_http import HttpSend

    return HttpSend(target)


class _Delivery:
    """How far the batches under way have come, so that a second offer sends only what is left."""

    def __init__(self, key: tuple[object, ...]) -> None:
        self.key = key
        self.done: set[int] = set()
        self.where: list[int] = []
        self.together = False
        self.reasons: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()


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
        self._senders, self._temporality, self._steps, self._clock = senders, temporality, steps, clock
        self._under_way = _Delivery(())

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. Spans still open are passed over: they come again when they end."""
        deadline = self._clock() + self.timeout
        key = offer_key(batches)
        if self._under_way.key != key:
            self._under_way = _Delivery(key)
        way = self._under_way
        pairs = [(batch.writer, batch.records) for batch in batches]
        requests, skipped = encode(pairs, temporality=self._temporality, steps=self._steps)
        for number, request in enumerate(requests):
            if number not in way.done:
                left = deadline - self._clock()
                if left <= 0:
                    raise Retry("slow: the time for one delivery was over; it goes on", after=0.0)
                self._send(request, left, way)
                way.done.add(number)
        self._under_way = _Delivery(())
        if self._temporality is not None:
            self._temporality.commit()
        lost = {reason: count for reason, count in skipped.items() if reason != OPEN_SPAN}
        refused = {**way.refused, **lost}
        if way.where:
            raise Reject("; ".join(way.reasons), way.where, together=way.together, counted=refused)
        return refused

    def close(self) -> None:
        """Close all connections."""
        for send in self._senders.values():
            send.close()

    def _send(self, request: Request, timeout: float, way: _Delivery) -> None:
        try:
            partial = self._senders[request.signal](request, timeout)
        except Reject as error:
            way.where += error.where
            way.together |= error.together
            way.reasons[str(error)] += 1
            return
        if partial.rejected >= request.count:
            way.where += request.where
            way.reasons[partial.message or "refused as a whole"] += 1
        elif partial.rejected:
            way.refused[partial.message or "partial success"] += partial.rejected
