"""The sink of our own hub: journal frames to POST /v1/stepscope; sequence numbers make retries idempotent."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from stepscope.model.errors import ConfigError, Reject, Retry, ServerError
from stepscope.model.ports import Batch
from stepscope.model.run_requests import Requests
from stepscope.sinks.http import (
    BLAMES_A_RECORD,
    RETRYABLE,
    SERVER_ERROR,
    Answer,
    Connection,
    Tls,
    check_address,
    compress,
    is_here,
    not_from,
    retry_after,
    sendable,
    without_secrets,
)
from stepscope.sinks.registry import convert
from stepscope.wire import frames

PATH = "/v1/stepscope"
DEFAULT = "http://127.0.0.1:4318"
_encode = msgspec.msgpack.Encoder().encode


class Hub(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of the hub and the token."""

    url: str = DEFAULT
    token: str | None = None
    timeout: float = 10.0
    compression: str = "auto"
    certificate: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Hub":
        """Read options; the address and the token may also be in STEPSCOPE_HUB_URL and STEPSCOPE_HUB_TOKEN."""
        variables = {"url": env.get("STEPSCOPE_HUB_URL"), "token": env.get("STEPSCOPE_HUB_TOKEN")}
        made = convert("hub", {**{key: value for key, value in variables.items() if value}, **options}, cls)
        if made.compression not in ("auto", "gzip", "none"):
            raise ConfigError(f"sinks: hub: compression {made.compression!r} is not known; use auto, gzip or none")
        check_address("sinks: hub: url", made.url)
        Tls(certificate=made.certificate).check()
        return structs.replace(made, token=sendable("sinks: hub: token", made.token))

    @property
    def place(self) -> str:
        """The hub's address."""
        return without_secrets(self.url)

    @property
    def remote(self) -> bool:
        """True: the shipper delivers to it."""
        return True

    @property
    def packed(self) -> bool:
        """Its protocol is the journal's: records are sent as they are stored, without decoding."""
        return True

    def open(self) -> "HubSink":
        """Make the sink."""
        return HubSink(self)


class HubSink:
    """Sends batches as frames, a head for each writer. Not thread-safe."""

    divisible = True

    def __init__(self, config: Hub) -> None:
        self.on_requests: Callable[[str, Requests], object] = lambda run, requests: None
        """Called with what users of the hub ask of the program of a run; must not raise."""
        self.timeout = config.timeout
        self._connection = Connection(config.url, Tls(certificate=config.certificate))
        self._path = urlsplit(config.url).path.rstrip("/") + PATH
        self._gzip = config.compression == "gzip" or (
            config.compression == "auto" and not is_here(urlsplit(config.url).hostname or "")
        )
        self._headers = {"content-type": "application/octet-stream", "user-agent": "Stepscope"}
        if self._gzip:
            self._headers["content-encoding"] = "gzip"
        if config.token:
            self._headers["authorization"] = f"Bearer {config.token}"

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send batches; a hub that has one already stores it once."""
        body = pack(batches)
        if self._gzip:
            body = compress(body)
        answer = self._connection.post(self._path, body, self._headers, self.timeout)
        if 200 <= answer.status < 300:
            self._pass_on(answer.body, {batch.writer.run for batch in batches})
            return _rejected(answer, batches)
        count = sum(len(batch.records) for batch in batches)
        if answer.status == SERVER_ERROR:
            raise ServerError(_reason(answer), range(count), retry_after(answer.headers))
        if answer.status in RETRYABLE:
            raise Retry(_reason(answer), retry_after(answer.headers))
        raise Reject(_reason(answer), range(count), together=answer.status in BLAMES_A_RECORD)

    def _pass_on(self, body: bytes, runs: Collection[str]) -> None:
        """Pass on what users of the hub ask of the programs whose records it just got; nothing of an invalid answer."""
        if b'"requests"' in body:
            with contextlib.suppress(ValueError, RecursionError):
                for run, asked in _requests(body).requests.items():
                    if run in runs:
                        self.on_requests(run, asked)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Answer(msgspec.Struct):
    """The part of an answer that is for programs."""

    requests: dict[str, Requests]


_requests = msgspec.json.Decoder(_Answer).decode


def pack(batches: Sequence[Batch]) -> bytes:
    """Write the frames of batches, a head wherever the writer changes; records may be packed already."""
    parts, last = [], None
    for batch in batches:
        if batch.writer != last:
            parts.append(frames.pack_head(batch.writer))
            last = batch.writer
        packed = isinstance(batch.records[0], msgspec.Raw) if batch.records else True
        records: Sequence[Any] = batch.records if packed else [_encode(record) for record in batch.records]
        parts.append(frames.pack_batch(batch.seq, records))
    return b"".join(parts)


def _rejected(answer: Answer, batches: Sequence[Batch]) -> dict[str, int]:
    """What the hub rejected, by reason; Reject for completely rejected batches."""
    try:
        found = msgspec.json.decode(answer.body)
        rejected = {str(reason): int(count) for reason, count in found["rejected"].items() if int(count) > 0}
        refused = {int(number): str(reason) for number, reason in found.get("refused", ())}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise not_from("a Stepscope hub", answer) from None
    where: list[int] = []
    start = 0
    for number, batch in enumerate(batches):
        if number in refused:
            where += range(start, start + len(batch.records))
        start += len(batch.records)
    if where:
        rest = {reason: count for reason, count in rejected.items() if reason not in refused.values()}
        raise Reject("; ".join(dict.fromkeys(refused.values())), where, counted=rest)
    return rejected


def _reason(answer: Answer) -> str:
    try:
        text = str(msgspec.json.decode(answer.body)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        text = answer.body[:200].decode("utf-8", "replace")
    return f"HTTP {answer.status}: {text[:200]}".rstrip(": ")
