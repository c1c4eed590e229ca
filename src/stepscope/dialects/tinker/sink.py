"""The Tinker sink: events to POST /api/v1/telemetry of a Tinker service or a compatible server."""

import itertools
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

import stepscope
from stepscope.dialects.tinker import wire
from stepscope.extend.sink import (
    BLAMES_A_RECORD,
    DENIED,
    OWN_RECORDS,
    SERVER_ERROR,
    Answer,
    Connection,
    Delivery,
    Tls,
    check_address,
    convert,
    not_from,
    retry_after,
    sendable,
    without_secrets,
)
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import KINDS, Span, kind

Kind = Literal["metric", "span", "log", "event", "alert"]
_WAIT = DENIED | {408, 409, 425, 429}
_NO_SERVICE = frozenset({404, 405, 501})
"""The statuses of a server that has no such path: records are kept until the address is right."""


class Tinker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address and key of the service, and the kinds of record to send."""

    url: str = "http://127.0.0.1:4318"
    api_key: str | None = None
    kinds: tuple[Kind, ...] = ("event", "alert")
    timeout: float = 10.0
    certificate: str | None = None

    remote: ClassVar[bool] = True
    excluded: ClassVar[tuple[str, ...]] = OWN_RECORDS

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Tinker":
        """Read options; the address and the key may also be in TINKER_BASE_URL and TINKER_API_KEY."""
        variables = {"url": env.get("TINKER_BASE_URL"), "api_key": env.get("TINKER_API_KEY")}
        given = dict(options)
        if isinstance(given.get("kinds"), str):
            given["kinds"] = [part.strip() for part in given["kinds"].split(",") if part.strip()]
        made = convert("tinker", {**{key: value for key, value in variables.items() if value}, **given}, cls)
        check_address("sinks: tinker: url", made.url)
        if not made.kinds:
            raise ConfigError(f"sinks: tinker: kinds is empty; known: {', '.join(KINDS)}")
        Tls(certificate=made.certificate).check()
        return structs.replace(made, api_key=sendable("sinks: tinker: api_key", made.api_key))

    @property
    def place(self) -> str:
        """The service's address."""
        return without_secrets(self.url)

    def open(self) -> "TinkerSink":
        """Make the sink."""
        return TinkerSink(self)


class _Waiting(NamedTuple):
    """An event that is still to be sent."""

    where: int
    writer: Writer
    session: str
    event: dict[str, Any]


class TinkerSink:
    """Sends events, at most a hundred of one session of one process in a request. Not thread-safe."""

    divisible = True

    def __init__(
        self,
        config: Tinker,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout = config.timeout
        self._kinds = frozenset(config.kinds)
        self._connection = Connection(config.url, Tls(certificate=config.certificate))
        self._place = config.place
        self._path = urlsplit(config.url).path.rstrip("/") + wire.PATH
        self._now = now
        self._headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "Stepscope"}
        if config.api_key:
            self._headers["x-api-key"] = config.api_key
        self._platform, self._version = platform.system(), f"stepscope-{stepscope.__version__}"
        self._numbers: dict[str, int] = {}
        """Settled events of each process; another shipper starts at 0 again, and ids identify repeated ones."""
        self._fresh: dict[str, int] = {}
        self._delivery: Delivery[list[_Waiting]] = Delivery(clock)

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet; other kinds and open spans are skipped."""
        if self._delivery.begin(batches, self.timeout):
            self._delivery.parts = self._requests(batches)
        self._delivery.send(self._send)
        self._numbers.update(self._fresh)
        return self._delivery.end()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _requests(self, batches: Sequence[Batch]) -> list[list[_Waiting]]:
        """Write the events of batches, and split them into requests of one session of one process."""
        self._fresh = {}
        found: dict[tuple[str, str], list[_Waiting]] = {}
        indices = itertools.count()
        for batch in batches:
            for record, where in zip(batch.records, indices, strict=False):
                is_open = isinstance(record, Span) and record.duration is None
                if kind(record) in self._kinds and not is_open:
                    number = self._fresh.get(batch.writer.id, self._numbers.get(batch.writer.id, 0))
                    if not wire.has_own_number(record):
                        self._fresh[batch.writer.id] = number + 1
                    event = wire.event_of(batch.writer, record, number)
                    session = wire.session_of(batch.writer, record)
                    group = found.setdefault((batch.writer.id, session), [])
                    group.append(_Waiting(where, batch.writer, session, event))
        most = wire.MAX_EVENTS
        return [group[start : start + most] for group in found.values() for start in range(0, len(group), most)]

    def _send(self, chunk: list[_Waiting], timeout: float) -> None:
        """Send one request; the outcome of its events is recorded in the delivery."""
        first, events = chunk[0], [each.event for each in chunk]
        headers = {**self._headers, "x-idempotency-key": wire.idempotency_key(events)}
        content = wire.body(first.writer, first.session, events, self._platform, self._version)
        answer = self._connection.post(self._path, content, headers, timeout)
        if 200 <= answer.status < 300:
            _must_be_accepted(answer)
            return
        reason, where = _reason(answer), [each.where for each in chunk]
        if answer.status in _NO_SERVICE:
            raise Retry(f"{self._place} is not a Tinker service ({reason}): set `url` or TINKER_BASE_URL")
        retry = Retry(reason, retry_after(answer.headers, self._now))
        if answer.status == SERVER_ERROR:
            self._delivery.fail(retry, where)
        elif answer.status in _WAIT or answer.status > SERVER_ERROR:
            raise retry
        else:
            self._delivery.reject(reason, where, together=answer.status in BLAMES_A_RECORD)


def _must_be_accepted(answer: Answer) -> None:
    if answer.status == 204:
        return
    try:
        accepted = msgspec.json.decode(answer.body)["status"] == "accepted"
    except (msgspec.DecodeError, TypeError, KeyError):
        accepted = False
    if not accepted:
        raise not_from("a Tinker service", answer)


def _reason(answer: Answer) -> str:
    try:
        found = msgspec.json.decode(answer.body)
        error = found.get("error")
        text = str(found.get("detail") or found.get("message") or (error.get("message") if error else found))
    except (msgspec.DecodeError, AttributeError):
        text = answer.body[:200].decode("utf-8", "replace")
    if answer.status in (401, 403):
        text = f"the API key is not accepted: check TINKER_API_KEY. {text}"
    return f"HTTP {answer.status}: {text[:200]}".rstrip(": .")
