"""Alerts, silences and marks of several hubs: documents that all of them share."""

import base64
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from stepscope.alerts.alert import Alert, Expected, Silence
from stepscope.alerts.state_machine import OPEN
from stepscope.hub.alerting.alert_log import MAX_RESOLVED, AlertLog, Changes
from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.store.cluster.documents import Document, DocumentWrite
from stepscope.model.errors import Retry

ALERT, SILENCE, EXPECTED, ACKNOWLEDGED = "alert", "silence", "expected", "acknowledged"
_PAUSE_SECONDS = 5.0
"""After a write of alerts failed, the next is tried so much later: notifications do not wait for the store."""
_SPARE = 200
"""Resolved alerts beyond the limit that are forgotten together."""

_silence = msgspec.json.Decoder(Silence).decode
_expected = msgspec.json.Decoder(Expected).decode


Thing = TypeVar("Thing", Silence, Expected)


class _Acknowledged(NamedTuple):
    who: str
    time: int


_acknowledged = msgspec.json.Decoder(_Acknowledged).decode
_alert = msgspec.msgpack.Decoder(Alert).decode


class SharedAlerts:
    """An `AlertStore` for hubs that share a store; the hub that evaluates an alert writes it. Not thread-safe."""

    shared = True

    def __init__(self, state: SharedState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state, self._clock = state, clock
        self.alerts: dict[str, Alert] = {}
        self.silences: dict[str, Silence] = {}
        self.expected: dict[str, Expected] = {}
        self.problem = ""
        self._subscriber: Callable[[], object] = lambda: None
        self._written: dict[str, str] = {}
        """What this hub wrote last of each alert."""
        self._unwritten: dict[str, Alert] = {}
        self._pause_until = 0.0
        self._lock = threading.Lock()
        self._queue: list[Document] = []
        for kind in (ALERT, SILENCE, EXPECTED, ACKNOWLEDGED):
            state.listen(kind, self._take)
            self._queue += state.all(kind).values()
        self.changes()

    def _take(self, found: Sequence[Document]) -> None:
        with self._lock:
            self._queue += found
        self._subscriber()

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function when another hub changed something, which `changes` then returns; it must be quick."""
        self._subscriber = subscriber

    def adopt(self, log: AlertLog) -> None:
        """Share what the log of a home holds and no hub has shared yet."""
        things: list[DocumentWrite] = []
        for kind, known in ((ALERT, log.alerts), (SILENCE, log.silences), (EXPECTED, log.expected)):
            unknown = [key for key in known if key not in self._state.known(kind)]
            things += [DocumentWrite(kind, key, _text(known[key])) for key in unknown]
        self._state.write(*things)
        self.changes()

    def changes(self) -> Changes:
        """Take over what other hubs changed since the last call."""
        with self._lock:
            found, self._queue = self._queue, []
        alerts: list[Alert] = []
        marks: list[Expected] = []
        for each in sorted(found, key=lambda each: each.version):
            if each.kind == ALERT:
                if each.value != self._written.get(each.key):
                    alerts += self._take_alert(each)
            elif each.kind == SILENCE:
                self.silences = _with(self.silences, each, _silence)
            elif each.kind == EXPECTED:
                before = self.expected
                self.expected = _with(before, each, _expected)
                marks += [mark for mark in (before.get(each.key), self.expected.get(each.key)) if mark is not None][:1]
        for alert in (*alerts, *(self.alerts[each.key] for each in found if each.key in self.alerts)):
            self._acknowledge(alert)
        return Changes(alerts, marks)

    def _take_alert(self, each: Document) -> list[Alert]:
        if each.deleted:
            self.alerts.pop(each.key, None)
            return []
        alert = _alert(base64.b64decode(each.value))
        if each.key not in self.alerts:
            self.alerts[each.key] = alert
        return [alert]

    def _acknowledge(self, alert: Alert) -> None:
        found = self._state.all(ACKNOWLEDGED).get(alert.id)
        if found is not None:
            alert.acknowledged_by, alert.acknowledged = _acknowledged(found.value)

    def keep(self, alerts: Iterable[Alert]) -> None:
        """Write changed alerts; what cannot be written now is written later, and `problem` says so."""
        for alert in alerts:
            if alert.state == "inactive":
                self.alerts.pop(alert.id, None)
            else:
                self.alerts[alert.id] = alert
            self._unwritten[alert.id] = alert
        if not self._unwritten or self._clock() < self._pause_until:
            return
        wanted = [
            DocumentWrite(ALERT, each.id, None if each.state == "inactive" else _text(each))
            for each in self._unwritten.values()
            if each.state != "inactive" or each.id in self._state.all(ALERT)
        ]
        wanted = [each for each in wanted if each.value is None or each.value != self._written.get(each.key)]
        try:
            self._write([*wanted, *self._forgotten()])
            self._unwritten.clear()
            self.problem = ""
        except Retry as error:
            self.problem = f"alerts are not shared with the other hubs: {error}"
            self._pause_until = self._clock() + _PAUSE_SECONDS

    def _write(self, wanted: Sequence[DocumentWrite]) -> None:
        before = dict(self._written)
        for each in wanted:
            if each.kind == ALERT:
                self._written[each.key] = each.value or ""
        try:
            self._state.write(*wanted)
        except Retry:
            self._written = before
            raise

    def _forgotten(self) -> list[DocumentWrite]:
        """The oldest alerts, once there are too many that are resolved."""
        over = [alert for alert in self.alerts.values() if alert.state not in OPEN and alert.state != "pending"]
        if len(over) <= MAX_RESOLVED + _SPARE:
            return []
        oldest = sorted(over, key=lambda alert: alert.changed)[:-MAX_RESOLVED]
        for alert in oldest:
            self.alerts.pop(alert.id, None)
            self._written.pop(alert.id, None)
        return [DocumentWrite(kind, alert.id, None) for alert in oldest for kind in (ALERT, ACKNOWLEDGED)]

    def acknowledge(self, alert: Alert, who: str, now: int) -> None:
        """Acknowledge an alert; Retry when that cannot be written."""
        value = msgspec.json.encode(_Acknowledged(who, now)).decode()
        self._state.write(DocumentWrite(ACKNOWLEDGED, alert.id, value))
        alert.acknowledged_by, alert.acknowledged = who, now

    def add(self, thing: Silence | Expected) -> None:
        """Write a silence or a mark; Retry when that cannot be written."""
        if isinstance(thing, Silence):
            self._state.write(DocumentWrite(SILENCE, thing.id, _text(thing)))
            self.silences = {**self.silences, thing.id: thing}
        else:
            self._state.write(DocumentWrite(EXPECTED, thing.id, _text(thing)))
            self.expected = {**self.expected, thing.id: thing}

    def remove(self, id: str) -> bool:
        """Remove a silence or a mark; False when there is none, Retry when that cannot be written."""
        kind = SILENCE if id in self.silences else EXPECTED if id in self.expected else ""
        if kind:
            self._state.write(DocumentWrite(kind, id, None))
            self.silences = {key: each for key, each in self.silences.items() if key != id}
            self.expected = {key: each for key, each in self.expected.items() if key != id}
        return bool(kind)


def _text(thing: Alert | Silence | Expected) -> str:
    """A thing as text; an alert may have values that JSON has not, such as NaN."""
    if isinstance(thing, Alert):
        return base64.b64encode(msgspec.msgpack.encode(thing)).decode()
    return msgspec.json.encode(thing).decode()


def _with(known: Mapping[str, Thing], each: Document, decode: Callable[[str], Thing]) -> dict[str, Thing]:
    if each.deleted:
        return {key: thing for key, thing in known.items() if key != each.key}
    return {**known, each.key: decode(each.value)}
