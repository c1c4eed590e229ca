"""Counts of what became of the records: written, rejected, dropped, by kind and reason."""

import threading
from collections import Counter


class Outcomes:
    """Counters of one process. `written + dropped` records and `rejected` values account for all that was offered."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again from nothing, with a fresh lock (after a fork the old one may be held for ever)."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._warned: set[tuple[str, str]] = set()
        self._notices: list[str] = []

    def add(self, outcome: str, kind: str, reason: str | None = None, count: int = 1) -> None:
        """Count one outcome, such as `rejected`, `value`, `string`."""
        name = f"{outcome}/{kind}" if reason is None else f"{outcome}/{kind}/{reason}"
        with self._lock:
            self._counts[name] += count

    def reject(self, key: str, reason: str) -> None:
        """Count a value that can not be kept, and note it once for its key."""
        self.add("rejected", "value", reason)
        self.notice("rejected", key, f"{key!r}: a value was rejected ({reason}); the other values were kept")

    def notice(self, topic: str, about: str, text: str) -> None:
        """Keep a warning for the flusher to print, once per topic and subject; never prints here."""
        with self._lock:
            if (topic, about) not in self._warned and len(self._warned) < 1000:
                self._warned.add((topic, about))
                self._notices.append(text)

    def notice_text(self, text: str) -> None:
        """Keep a warning, once per text."""
        self.notice("notice", text, text)

    def rearm(self, topic: str, about: str) -> None:
        """Allow a notice again, once what it was about is mended."""
        with self._lock:
            self._warned.discard((topic, about))

    def take_notices(self) -> list[str]:
        """Hand over the warnings not printed yet."""
        with self._lock:
            notices, self._notices = self._notices, []
        return notices

    def snapshot(self) -> dict[str, int]:
        """Copy the counters."""
        with self._lock:
            return dict(self._counts)
