"""Replies of an OTLP server: rejected items by reason, partial success, Status."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepscope.model.errors import StepscopeError
from stepscope.wire.otlp.names import Encoding, Signal
from stepscope.wire.otlp.protobuf_writing import MASK, delimited, scan, text, varint

_EXAMPLES = 3
_NOUNS: dict[Signal, str] = {"traces": "spans", "metrics": "data points", "logs": "log records"}


class BadRequest(StepscopeError, ValueError):
    """The bytes are not an OTLP request of this signal; the only exception that decoding raises."""


class NotOtlp(StepscopeError, ValueError):
    """The body of a success is not OTLP's: something else answered, and nothing is known to be accepted."""


@dataclass(slots=True)
class Rejections:
    """The rejected items and parts of items of one request, for `partial_success` and the hub's counters."""

    signal: Signal
    reasons: dict[str, int] = field(default_factory=dict)
    """How many were refused, by reason."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first few of each."""
    warnings: dict[str, int] = field(default_factory=dict)
    """Counts of parts that were left out of accepted items."""

    def warn(self, reason: str, name: str = "", count: int = 1) -> None:
        """Count parts left out of accepted items; the first few names are kept."""
        self.warnings[reason] = self.warnings.get(reason, 0) + count
        self._remember(reason, name)

    def add(self, reason: str, name: str = "", count: int = 1) -> None:
        """Count items rejected for one reason; the first few names are kept."""
        self.reasons[reason] = self.reasons.get(reason, 0) + count
        self._remember(reason, name)

    def _remember(self, reason: str, name: str) -> None:
        examples = self.examples.setdefault(reason, [])
        if name and len(examples) < _EXAMPLES and name not in examples:
            examples.append(name[:80])

    @property
    def count(self) -> int:
        """How many items were refused."""
        return sum(self.reasons.values())

    @property
    def message(self) -> str:
        """Describe in one line what was rejected or left out, and why; empty when nothing was."""
        noun = _NOUNS[self.signal]
        parts = []
        if self.reasons:
            parts.append(f"{self.count} {noun} rejected: {self._explained(self.reasons)}")
        if self.warnings:
            parts.append(f"{noun} accepted without their malformed parts: {self._explained(self.warnings)}")
        return "; ".join(parts)

    def _explained(self, reasons: dict[str, int]) -> str:
        return "; ".join(self._explain(reason, count) for reason, count in reasons.items())

    def _explain(self, reason: str, count: int) -> str:
        examples = ", ".join(self.examples[reason])
        return f"{reason} ({count}: {examples})" if examples else f"{reason} ({count})"


INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE = 3, 8, 14
"""The codes of google.rpc that a receiver answers with."""

_REJECTED: dict[Signal, str] = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
_LONGEST = 2_000
_FOREVER = 2.0**40


@dataclass(frozen=True, slots=True)
class PartialSuccess:
    """What a server rejected of a request it accepted; zero and no message is full success."""

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """Why a server rejected a whole request, and after how many seconds to retry."""

    code: int = 0
    message: str = ""
    retry_after: float | None = None


def write_reply(encoding: Encoding, rejections: Rejections) -> bytes:
    """Write the body of a 200: empty, or what was rejected and why; none rejected and a message is a warning."""
    if not rejections.message:
        return b"" if encoding == "protobuf" else b"{}"
    count, message = rejections.count, rejections.message[:_LONGEST]
    if encoding == "protobuf":
        return delimited(b"\x0a", (b"\x08" + varint(count) if count else b"") + text(b"\x12", message))
    field = _REJECTED[rejections.signal]
    return msgspec.json.encode({"partialSuccess": {field: str(count), "errorMessage": _utf8(message)}})


def write_status(encoding: Encoding, status: Status) -> bytes:
    """Write a google.rpc.Status: the body of a 4xx or 5xx, and gRPC's `grpc-status-details-bin`."""
    message = status.message[:_LONGEST]
    after = None if status.retry_after is None else max(status.retry_after, 0.0)
    if encoding == "json":
        document: dict[str, Any] = {"code": status.code, "message": _utf8(message)}
        if after is not None:
            document["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{after:.3f}s"}]
        return msgspec.json.encode(document)
    out = b"\x08" + varint(status.code & MASK) + text(b"\x12", message)
    if after is not None:
        seconds, nanos = divmod(round(after * 1e9), 10**9)
        delay = b"\x08" + varint(seconds) + b"\x10" + varint(nanos)
        detail = text(b"\x0a", _RETRY_INFO) + delimited(b"\x12", delimited(b"\x0a", delay))
        out += delimited(b"\x1a", detail)
    return out


def read_http_reply(signal: Signal, sent: Encoding, content_type: str, body: bytes) -> PartialSuccess:
    """Read the body of a 2xx as its content type says; NotOtlp for a page, or another text.

    An empty body is OTLP's full success, whatever it is called. Some servers declare JSON as text, or nothing at all.
    """
    if not body:
        return PartialSuccess()
    declared = content_type.partition(";")[0].strip().lower()
    if "json" in declared or (declared == "text/plain" and body.lstrip()[:1] == b"{"):
        return read_reply(signal, "json", body)
    if "protobuf" in declared:
        return read_reply(signal, "protobuf", body)
    if declared in ("", "application/octet-stream"):
        return read_reply(signal, sent, body)
    raise NotOtlp(f"{declared} is not a content type of OTLP")


def read_reply(signal: Signal, encoding: Encoding, body: bytes) -> PartialSuccess:
    """Read a response message; NotOtlp when the body is none. Unknown fields and odd counts are ignored."""
    try:
        if encoding == "protobuf":
            return _partial_success(_last(body, 1, b""))
        document = msgspec.json.decode(body)
    except (RecursionError, ValueError) as error:
        raise NotOtlp(str(error)) from None
    if not isinstance(document, dict):
        raise NotOtlp("the JSON is not an object")
    partial = document.get("partialSuccess")
    if not isinstance(partial, dict):
        return PartialSuccess()
    try:
        rejected = max(int(partial.get(_REJECTED[signal]) or 0), 0)
    except (OverflowError, TypeError, ValueError):
        rejected = 0
    return PartialSuccess(rejected, str(partial.get("errorMessage") or ""))


def read_status(encoding: Encoding, body: bytes) -> Status:
    """Read the body of an error; one that is not a Status becomes the message, truncated."""
    try:
        return _status(body) if encoding == "protobuf" else _status_json(body)
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        return Status(message=body[:200].decode("utf-8", "replace"))


def _utf8(message: str) -> str:
    return message.encode("utf-8", "replace").decode()


def _last(message: bytes, number: int, default: Any) -> Any:
    """Find a field's value, of the default's type; the last counts."""
    found = default
    for tag, value in scan(message):
        if tag == number and type(value) is type(default):
            found = value
    return found


def _partial_success(message: bytes) -> PartialSuccess:
    rejected = _last(message, 1, 0)
    return PartialSuccess(rejected if rejected >> 63 == 0 else 0, _last(message, 2, b"").decode("utf-8", "replace"))


def _status(body: bytes) -> Status:
    code, message = _last(body, 1, 0), _last(body, 2, b"").decode()
    if not 0 <= code <= 16:
        raise ValueError("not a code of google.rpc")
    after = None
    for tag, detail in scan(body):
        if tag == 3 and isinstance(detail, bytes) and _last(detail, 1, b"") == _RETRY_INFO.encode():
            delay = _last(_last(detail, 2, b""), 1, b"")
            after = _last(delay, 1, 0) + _last(delay, 2, 0) / 1e9
    return Status(code, message, after if after is None or after < _FOREVER else None)


def _status_json(body: bytes) -> Status:
    document = msgspec.json.decode(body)
    after = None
    for detail in document.get("details") or ():
        if detail.get("@type") == _RETRY_INFO:
            after = float(detail.get("retryDelay", "0s").removesuffix("s"))
    if after is not None and not 0 <= after < _FOREVER:
        after = None
    message = str(document.get("message") or "") or body[:200].decode("utf-8", "replace")
    return Status(int(document.get("code") or 0), message, after)
