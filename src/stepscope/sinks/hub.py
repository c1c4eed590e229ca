"""The sink of our own hub: journal frames to POST /v1/stepscope; sequence numbers make retries idempotent."""

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import structs

from stepscope.journal.blobs import DIGEST, blobs_of
from stepscope.journal.layout import writer_folder
from stepscope.model.errors import ConfigError, Reject, Retry, ServerError
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event
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
MAX_SENT = 100_000
"""Files that are remembered as sent; further ones are asked for again."""
MIN_BYTES_PER_SECOND = 256 * 1024
"""The slowest connection over which a large file is sent."""
_encode = msgspec.msgpack.Encoder().encode


class Hub(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of the hub and the token."""

    url: str = DEFAULT
    token: str | None = None
    timeout: float = 10.0
    compression: str = "auto"
    certificate: str | None = None

    remote: ClassVar[bool] = True

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
        self.home: Path | None = None
        """The home folder, in which the files that records name are; None sends records alone."""
        self._sent: set[tuple[str, str]] = set()
        """Files that the hub is known to have, by run and digest."""
        self._place = urlsplit(config.url).path.rstrip("/")
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
        """Send batches, the files that they name first; a hub that has one already stores it once."""
        if self.home is not None:
            self._send_files(self.home, batches)
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

    def _send_files(self, home: Path, batches: Sequence[Batch]) -> None:
        """Send the files that records name; Reject, for all to be tried apart, when one is gone or is not taken.

        Sending many takes longer than a write may take: the rest follows in the next one, by Retry after 0 seconds.
        """
        began = time.monotonic()
        for writer, digest in _named_files(batches):
            if (writer.run, digest) in self._sent:
                continue
            if time.monotonic() - began > self.timeout / 2:
                raise Retry("more files are to be sent", 0.0)
            problem = self._send_file(writer, digest, home)
            if problem:
                raise Reject(problem, range(sum(len(batch.records) for batch in batches)), together=True)
            if len(self._sent) < MAX_SENT:
                self._sent.add((writer.run, digest))

    def _send_file(self, writer: Writer, digest: str, home: Path) -> str:
        """Send one file unless the hub has it; return why it was not taken, else nothing."""
        path = f"{self._place}{PATH}/blobs/{quote(writer.run, safe='')}/{digest}"
        headers = {key: value for key, value in self._headers.items() if key != "content-encoding"}
        answer = self._connection.ask("HEAD", path, b"", headers, self.timeout)
        if answer.status in (404, 405):
            found = blobs_of(writer_folder(home, writer.run, writer.id)).find(digest)
            if found is None:
                return "the file that the record names is gone"
            answer = self._put(path, found, headers)
        if answer.status in RETRYABLE:
            raise Retry(_reason(answer), retry_after(answer.headers))
        return "" if 200 <= answer.status < 300 else f"the file was not taken: {_reason(answer)}"

    def _put(self, path: str, file: Path, headers: Mapping[str, str]) -> Answer:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            body = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            timeout = self.timeout + size / MIN_BYTES_PER_SECOND
            try:
                return self._connection.ask("PUT", path, body, headers, timeout)
            finally:
                if isinstance(body, mmap.mmap):
                    body.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Answer(msgspec.Struct):
    """The part of an answer that is for programs."""

    requests: dict[str, Requests]


_requests = msgspec.json.Decoder(_Answer).decode


def _named_files(batches: Sequence[Batch]) -> Iterator[tuple[Writer, str]]:
    """Yield the digests of the files that records name, each with the writer; records may be packed."""
    mark = EVENT_MEDIA.encode()
    for batch in batches:
        records: Sequence[Any] = batch.records
        for record in records:
            if isinstance(record, msgspec.Raw):
                packed = bytes(record)
                record = frames.unpack_record(packed) if mark in packed else None
            if isinstance(record, Event) and record.name == EVENT_MEDIA:
                digest = str(record.attrs.get("sha256"))
                if DIGEST.fullmatch(digest):
                    yield batch.writer, digest


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
