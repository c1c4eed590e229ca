"""The sink of a Tinker service, or of a server that speaks its telemetry: events to POST /api/v1/telemetry."""

import itertools
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.model.ports import Batch, offer_key
from stepscope.model.records import KINDS, Span, kind
from stepscope.model.writer import Writer
from stepscope.sinks.http import DENIED, Answer, Connection, Tls, check_address, retry_after, sendable, without_secrets
from stepscope.sinks.record_filter import OWN_RECORDS
from stepscope.sinks.registry import convert
from stepscope.wire import tinker as wire

Kind = Literal["metric", "span", "log", "event", "alert"]
_WAIT = DENIED | {408, 409, 425, 429}
_LOT = frozenset({400, 413, 422})
_NO_SERVICE = frozenset({404, 405, 501})
"""What a server answers that has no such path: no record is to blame, so all of them wait for the right address."""


class Tinker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the service is, what it wants to be shown, and which kinds of record it gets."""

    url: str = "http://127.0.0.1:4318"
    api_key: str | None = None
    kinds: tuple[Kind, ...] = ("event", "alert")
    timeout: float = 10.0
    certificate: str | None = None

    excluded: ClassVar[tuple[str, ...]] = OWN_RECORDS

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Tinker":
        """Read options; the address and the key may also be in TINKER_BASE_URL and TINKER_API_KEY."""
        said = {"url": env.get("TINKER_BASE_URL"), "api_key": env.get("TINKER_API_KEY")}
        given = dict(options)
        if isinstance(given.get("kinds"), str):
            given["kinds"] = [part.strip() for part in given["kinds"].split(",") if part.strip()]
        made = convert("tinker", {**{key: value for key, value in said.items() if value}, **given}, cls)
        check_address("sinks: tinker: url", made.url)
        if not made.kinds:
            raise ConfigError(f"sinks: tinker: kinds names none; known: {', '.join(KINDS)}")
        Tls(certificate=made.certificate).check()
        return structs.replace(made, api_key=sendable("sinks: tinker: api_key", made.api_key))

    @property
    def place(self) -> str:
        """The service's address."""
        return without_secrets(self.url)

    @property
    def remote(self) -> bool:
        """It is served by the shipper."""
        return True

    def open(self) -> "TinkerSink":
        """Make the sink."""
        return TinkerSink(self)


class _Waiting(NamedTuple):
    """An event that is still to be sent."""

    where: int
    writer: Writer
    session: str
    event: dict[str, Any]

    @property
    def sender(self) -> tuple[str, str]:
        """What the events of one request have in common: the process and the session."""
        return self.writer.id, self.session


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
        self._now, self._clock = now, clock
        self._headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "Stepscope"}
        if config.api_key:
            self._headers["x-api-key"] = config.api_key
        self._platform, self._version = platform.system(), f"stepscope-{_own_version()}"
        self._numbers: dict[str, int] = {}
        """Events of each process that are settled; another shipper begins at 0 again, and ids tell repeated ones."""
        self._fresh: dict[str, int] = {}
        self._key: tuple[object, ...] | None = None
        self._waiting: list[_Waiting] = []
        self._where: list[int] = []
        self._together = False
        self._reasons: dict[str, None] = {}

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet; kinds that were not asked for, and spans still open, are passed over."""
        deadline = self._clock() + self.timeout
        key = offer_key(batches)
        if key != self._key:
            self._begin(batches)
            self._key = key
        while self._waiting:
            left = deadline - self._clock()
            if left <= 0:
                raise Retry("slow: the time for one delivery was over; it goes on", after=0.0)
            self._send(left)
        self._key = None
        self._numbers.update(self._fresh)
        if self._where:
            raise Reject("; ".join(self._reasons), self._where, together=self._together)
        return {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _begin(self, batches: Sequence[Batch]) -> None:
        self._waiting, self._where, self._together, self._reasons, self._fresh = [], [], False, {}, {}
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
                    self._waiting.append(_Waiting(where, batch.writer, session, event))
        senders = {sender: at for at, sender in enumerate(dict.fromkeys(each.sender for each in self._waiting))}
        self._waiting.sort(key=lambda each: senders[each.sender])  # few requests, also where sessions take turns

    def _send(self, timeout: float) -> None:
        """Send the next events of one session of one process, and take what was settled off the front."""
        first = self._waiting[0]
        alike = itertools.takewhile(lambda each: each.sender == first.sender, self._waiting)
        lot = list(itertools.islice(alike, wire.MOST_EVENTS))
        events = [each.event for each in lot]
        headers = {**self._headers, "x-idempotency-key": wire.idempotency_key(events)}
        content = wire.body(first.writer, first.session, events, self._platform, self._version)
        answer = self._connection.post(self._path, content, headers, timeout)
        if 200 <= answer.status < 300:
            _must_be_accepted(answer)
        else:
            reason = _reason(answer)
            if answer.status in _NO_SERVICE:
                raise Retry(f"{self._place} is not a Tinker service ({reason}): set `url` or TINKER_BASE_URL")
            if answer.status in _WAIT or answer.status >= 500:
                raise Retry(reason, retry_after(answer.headers, self._now))
            self._where += [each.where for each in lot]
            self._together |= answer.status in _LOT
            self._reasons[reason] = None
        del self._waiting[: len(lot)]


def _must_be_accepted(answer: Answer) -> None:
    if answer.status == 204:
        return
    try:
        accepted = msgspec.json.decode(answer.body)["status"] == "accepted"
    except (msgspec.DecodeError, TypeError, KeyError):
        accepted = False
    if not accepted:
        raise Retry("the answer is not that of a Tinker service: is the address right?")


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


def _own_version() -> str:
    try:
        return version("stepscope")
    except PackageNotFoundError:
        return "unknown"
