"""The log of alerts, silences and marks: HOME/hub/alerts.log, append-only and synced."""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from stepscope.alerts.alert import Alert, Expected, Silence
from stepscope.alerts.state_machine import OPEN
from stepscope.journal.atomic_files import append_synced, replace_file
from stepscope.model.errors import Retry
from stepscope.wire import frames

NAME = "alerts.log"
MAX_RESOLVED = 2000
"""The number of resolved alerts that are kept, newest first."""
REWRITE_BYTES = 64 * 1024 * 1024


class Entry(msgspec.Struct, array_like=True):
    """The state of one alert, silence or mark; a later entry with the same id replaces an earlier one."""

    alert: Alert | None = None
    silence: Silence | None = None
    expected: Expected | None = None
    removed: str = ""


def _entry(thing: Silence | Expected) -> Entry:
    return Entry(silence=thing) if isinstance(thing, Silence) else Entry(expected=thing)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def read_marks(folder: Path) -> list[Expected]:
    """Read the marks as expected that a hub keeps in its folder, without changing anything."""
    with contextlib.suppress(OSError):
        return list(AlertLog(folder, write=False).expected.values())
    return []


class Changes(NamedTuple):
    """What other hubs changed: alerts as these wrote them, and marks that were added or removed."""

    alerts: Sequence[Alert] = ()
    marks: Sequence[Expected] = ()


class AlertStore(Protocol):
    """Alerts, silences and marks, in memory and where they survive a restart. Not thread-safe."""

    shared: bool
    """Whether other hubs write here, too."""
    alerts: dict[str, Alert]
    silences: dict[str, Silence]
    expected: dict[str, Expected]
    problem: str
    """Why the latest change of alerts is not written; it is tried again with the next."""

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function when another hub changed something, which `changes` then returns; it must be quick."""

    def keep(self, alerts: Iterable[Alert]) -> None:
        """Write changed alerts; those that never fired are dropped."""

    def acknowledge(self, alert: Alert, who: str, now: int) -> None:
        """Acknowledge an alert; Retry when that cannot be written."""

    def add(self, thing: Silence | Expected) -> None:
        """Write a silence or a mark; Retry when that cannot be written."""

    def remove(self, id: str) -> bool:
        """Remove a silence or a mark; False when there is none, Retry when that cannot be written."""

    def changes(self) -> Changes:
        """Take over what other hubs changed since the last call."""


class AlertLog:
    """An `AlertStore` on disk. Damaged entries are skipped. Not thread-safe."""

    shared = False

    def __init__(self, folder: Path, *, write: bool = True) -> None:
        self._path = folder / NAME
        self.alerts: dict[str, Alert] = {}
        self.silences: dict[str, Silence] = {}
        self.expected: dict[str, Expected] = {}
        self.problem = ""
        self._unwritten: list[Entry] = []
        self._load()
        if write:
            self._rewrite()

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Do nothing: one hub writes the file."""

    def keep(self, alerts: Iterable[Alert]) -> None:
        """Write changed alerts in one append; those that never fired are dropped."""
        entries = []
        for alert in alerts:
            if alert.state == "inactive":
                self.alerts.pop(alert.id, None)
                entries.append(Entry(removed=alert.id))
            else:
                self.alerts[alert.id] = alert
                entries.append(Entry(alert=alert))
        self._append(entries)

    def acknowledge(self, alert: Alert, who: str, now: int) -> None:
        """Acknowledge an alert; Retry when that cannot be written."""
        before = alert.acknowledged_by, alert.acknowledged
        alert.acknowledged_by, alert.acknowledged = who, now
        try:
            self._write(Entry(alert=alert))
        except Retry:
            alert.acknowledged_by, alert.acknowledged = before
            raise

    def changes(self) -> Changes:
        """Return nothing: one hub writes the file."""
        return Changes()

    def add(self, thing: Silence | Expected) -> None:
        """Write a silence or a mark; Retry when that cannot be written."""
        known = self.silences.get(thing.id) or self.expected.get(thing.id)
        entry, before = _entry(thing), Entry(removed=thing.id) if known is None else _entry(known)
        self._apply(entry)
        try:
            self._write(entry)
        except Retry:
            self._apply(before)
            raise

    def remove(self, id: str) -> bool:
        """Remove a silence or a mark; False when there is none, Retry when that cannot be written."""
        silence, mark = self.silences.pop(id, None), self.expected.pop(id, None)
        if silence is None and mark is None:
            return False
        try:
            self._write(Entry(removed=id))
        except Retry:
            self._apply(Entry(silence=silence, expected=mark))
            raise
        return True

    def _write(self, entry: Entry) -> None:
        """Write what a person asked for; Retry when it cannot be written, and it is not written later either."""
        self._append([entry])
        if any(each is entry for each in self._unwritten):
            self._unwritten = [each for each in self._unwritten if each is not entry]
            raise Retry(self.problem, after=5.0)

    def _append(self, entries: list[Entry]) -> None:
        self._unwritten += entries
        if not self._unwritten:
            return
        data = b"".join(frames.frame(_encode(entry)) for entry in self._unwritten)
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(fd).st_size
                append_synced(fd, data, size)
            finally:
                os.close(fd)
        except OSError as error:
            self.problem = f"alerts cannot be written: {error.strerror or error}"
            return
        self.problem = ""
        self._unwritten.clear()
        if size + len(data) > REWRITE_BYTES:
            self._rewrite()

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        for each in frames.scan(data, final=True):
            if isinstance(each, frames.Frame):
                with contextlib.suppress(msgspec.MsgspecError):
                    self._apply(_decode(each.payload))

    def _apply(self, entry: Entry) -> None:
        if entry.alert is not None:
            self.alerts[entry.alert.id] = entry.alert
        elif entry.silence is not None:
            self.silences[entry.silence.id] = entry.silence
        elif entry.expected is not None:
            self.expected[entry.expected.id] = entry.expected
        for known in (self.alerts, self.silences, self.expected) if entry.removed else ():
            known.pop(entry.removed, None)

    def _rewrite(self) -> None:
        """Compact the file, atomically."""
        self._forget_old()
        entries = [
            *(Entry(alert=each) for each in self.alerts.values()),
            *(Entry(silence=each) for each in self.silences.values()),
            *(Entry(expected=each) for each in self.expected.values()),
        ]
        data = b"".join(frames.frame(_encode(entry)) for entry in entries)
        try:
            replace_file(self._path, data, fsync=True)
        except OSError as error:
            self.problem = f"alerts cannot be written: {error.strerror or error}"

    def _forget_old(self) -> None:
        over = [alert for alert in self.alerts.values() if alert.state not in OPEN and alert.state != "pending"]
        for alert in sorted(over, key=lambda alert: alert.changed)[:-MAX_RESOLVED]:
            del self.alerts[alert.id]
