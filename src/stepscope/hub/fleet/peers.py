"""What a hub stored, sent to the other hubs on the same store, whose live streams and run states then show it too."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus

import msgspec

from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.intake.intake_journal import IntakeBatch
from stepscope.hub.intake.store_pump import ReceivedBatch, measured
from stepscope.hub.limits import MEGA
from stepscope.hub.live import LiveTopics
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.tokens import Passed, RateLimits
from stepscope.hub.store.cluster.ownership import Member, Ownership
from stepscope.model.errors import Retry
from stepscope.sinks.http import Connection

PATH = "/hubs/stored"
MAX_WAITING, MAX_WAITING_BYTES = 50_000, 64 * MEGA
"""Records that wait to be sent, and their memory; beyond it they are dropped, for the store has them."""
_REQUEST_RECORDS = 5_000
_SECONDS = 3.0
_PAUSE_SECONDS = 5.0
"""A hub that does not answer is left alone for so long."""
_TELL_SECONDS = 0.25
"""How often the other hubs are told how many requests passed, and what they missed."""


class Stored(msgspec.Struct, array_like=True):
    """Batches that were just stored, runs whose findings changed, and what else other hubs must know at once."""

    batches: list[IntakeBatch] = []
    findings: list[Changed] = []
    missed: int = 0
    """Records that were stored and could not be sent."""
    passed: Passed = {}
    """Requests with each token that the sender let pass."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Stored).decode


class Peers:
    """Sends what is stored here to the other hubs, and passes on what they send; nothing waits for it.

    What is stored `here` is sent to the others; what they send is announced as stored `elsewhere`.
    """

    def __init__(
        self,
        ownership: Ownership,
        connect: Callable[[str], Connection],
        rates: RateLimits,
        *,
        here: LiveTopics,
        elsewhere: LiveTopics,
    ) -> None:
        self._ownership, self._rates, self._elsewhere = ownership, rates, elsewhere
        self._connect = connect
        self._connections: dict[str, Connection] = {}
        self._silent_until: dict[str, float] = {}
        self._lock = threading.Lock()
        self._items: list[ReceivedBatch] = []
        self._findings: list[Changed] = []
        self._records = self._bytes = 0
        self._missed: dict[str, int] = {}
        """Records that each hub was not sent."""
        self._wake, self._halt = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="stepscope-peers", daemon=True)
        here.stored.subscribe(self.take)
        here.found.subscribe(self.take_findings)

    def start(self) -> None:
        """Start the thread that sends."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._halt.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(2 * _SECONDS)

    def take(self, items: Sequence[ReceivedBatch]) -> None:
        """Queue what was just stored."""
        others = self._others()
        if not others:
            return
        count, size = sum(len(item.batch.records) for item in items), sum(item.bytes for item in items)
        with self._lock:
            if self._records + count > MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
                self._miss(others, count)
                return
            self._items += items
            self._records += count
            self._bytes += size
        self._wake.set()

    def take_findings(self, changed: Sequence[Changed]) -> None:
        """Queue findings that were just stored."""
        if self._others():
            with self._lock:
                self._findings += changed
            self._wake.set()

    def receive(self, data: bytes) -> None:
        """Pass on what another hub stored; Refused when it cannot be read."""
        try:
            found = _decode(data)
        except (ValueError, RecursionError):
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body must be stored batches")) from None
        items = [ReceivedBatch(each.receiver, each.batch()) for each in found.batches]
        if items:
            self._elsewhere.stored.announce(measured(items), _raise)
        if found.findings:
            self._elsewhere.found.announce(found.findings, _raise)
        if found.missed:
            self._elsewhere.missed.announce(found.missed, _raise)
        if found.passed:
            self._rates.add_elsewhere(found.passed)

    def _others(self) -> list[Member]:
        return [each for each in self._ownership.living() if each.hub != self._ownership.member.hub and each.address]

    def _loop(self) -> None:
        while not self._halt.is_set():
            self._wake.wait(_TELL_SECONDS)
            self._wake.clear()
            with self._lock:
                items, findings = self._items, self._findings
                self._items, self._findings, self._records, self._bytes = [], [], 0, 0
            passed = self._rates.passed()
            others = self._others()
            for part in (*_parts(items, findings), *([Stored(passed=passed)] if passed else ())):
                for other in others:
                    self._send(other, part)
            for other in others:
                if other.hub in self._missed:
                    self._send(other, Stored())

    def _send(self, other: Member, part: Stored) -> None:
        count = sum(len(batch.records) for batch in part.batches)
        if time.monotonic() < self._silent_until.get(other.address, 0.0):
            self._miss([other], count)
            return
        missed = self._missed.pop(other.hub, 0)
        connection = self._connections.get(other.address)
        if connection is None:
            connection = self._connections[other.address] = self._connect(other.address)
        try:
            connection.post(PATH, _encode(msgspec.structs.replace(part, missed=missed)), other.headers, _SECONDS)
        except Retry:
            self._silent_until[other.address] = time.monotonic() + _PAUSE_SECONDS
            self._miss([other], count + missed)
        except (ValueError, TypeError, OverflowError, RecursionError):  # it cannot be packed
            self._miss([other], count + missed)

    def _miss(self, others: Sequence[Member], count: int) -> None:
        for other in others if count else ():
            self._missed[other.hub] = self._missed.get(other.hub, 0) + count


def _raise(error: Exception) -> None:
    raise error


def _parts(items: Sequence[ReceivedBatch], findings: Sequence[Changed]) -> Iterator[Stored]:
    """Divide what is to be sent into requests of a moderate size."""
    part: list[IntakeBatch] = []
    records = 0
    for item in items:
        part.append(IntakeBatch.of(item.receiver, item.batch))
        records += len(item.batch.records)
        if records >= _REQUEST_RECORDS:
            yield Stored(part)
            part, records = [], 0
    if part:
        yield Stored(part)
    if findings:
        yield Stored([], list(findings))
