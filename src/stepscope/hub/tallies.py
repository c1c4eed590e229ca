"""Counts of what became of records in the hub: outcome, receiver, reason."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

OUTCOMES = ("written", "stored", "retried", "rejected", "dropped")
"""Written is in the hub's journal and acknowledged, stored is in the store."""


class Label(NamedTuple):
    """What a count is of."""

    outcome: str
    receiver: str
    reason: str = ""


class Tallies:
    """Counters of one hub process, safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Label] = Counter()

    def add(self, outcome: str, receiver: str, count: int = 1, reason: str = "") -> None:
        """Count records (requests, where `retried`) with one outcome."""
        if count:
            with self._lock:
                self._counts[Label(outcome, receiver, reason)] += count

    def add_reasons(self, outcome: str, receiver: str, reasons: Mapping[str, int]) -> None:
        """Count an outcome by reason."""
        for reason, count in reasons.items():
            self.add(outcome, receiver, count, reason)

    def snapshot(self) -> dict[Label, int]:
        """Copy the counters."""
        with self._lock:
            return dict(self._counts)

    def total(self, outcome: str, receiver: str | None = None) -> int:
        """Add up one outcome, of one receiver or of all."""
        return sum(
            count
            for label, count in self.snapshot().items()
            if label.outcome == outcome and receiver in (None, label.receiver)
        )
