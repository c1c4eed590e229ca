"""Counters of record outcomes, as JSON and as metric families for `/metrics`."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from stepscope.wire.openmetrics import Family

OUTCOMES = ("written", "stored", "forwarded", "deferred", "retried", "rejected", "dropped")
"""`written` is in the hub's journal and acknowledged, `forwarded` in that of another hub, `stored` is in the store.

`deferred` records wait for their shard, and are stored later; each is counted once, however often it is tried.
"""


MAX_LABELS = 1000
"""A reason may quote what a client sent: new ones beyond these are counted together."""
OTHER = "other reasons"


class Label(NamedTuple):
    """The labels of a counter."""

    outcome: str
    receiver: str
    reason: str = ""


class Counters:
    """Counters of one hub process, safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Label] = Counter()

    def add(self, outcome: str, receiver: str, count: int = 1, reason: str = "") -> None:
        """Count records (requests, where `retried`) with one outcome."""
        if count:
            label = Label(outcome, receiver, reason)
            with self._lock:
                if reason and label not in self._counts and len(self._counts) >= MAX_LABELS:
                    label = label._replace(reason=OTHER)
                self._counts[label] += count

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


_HELP = {
    "written": "Records in the hub's journal and acknowledged.",
    "stored": "Records in the store.",
    "forwarded": "Records handed to the hub that writes to their shard.",
    "deferred": "Records deferred until their shard is available.",
    "retried": "Requests or batches to be retried.",
    "rejected": "Records rejected permanently.",
    "dropped": "Records or attributes lost on the way.",
}
_GAUGES = {
    ("journal", "bytes"): ("journal_bytes", "Bytes of the hub's journal on disk."),
    ("journal", "deferred_bytes"): ("deferred_bytes", "Bytes deferred until their shard is available."),
    ("journal", "waiting_bytes"): ("queue_bytes", "Bytes accepted and not yet in the journal."),
    ("lag", "bytes"): ("lag_bytes", "Bytes of journals that are not in the store yet."),
    ("lag", "seconds"): ("lag_seconds", "How long the oldest record has waited for the store."),
    ("store", "records_per_second"): ("insert_rate", "Records stored per second."),
    ("store", "bytes"): ("store_bytes", "Bytes of the store on disk."),
    ("folder", "writers"): ("folder_writers", "Journals that are followed in the home folder."),
}


def outcomes(counts: Mapping[Label, int]) -> dict[str, Any]:
    """Group counters by receiver and outcome, and by reason where there is one."""
    found: dict[str, Any] = {}
    for label, count in sorted(counts.items()):
        receiver = found.setdefault(label.receiver, {})
        if label.reason:
            receiver.setdefault(label.outcome, {})[label.reason] = count
        else:
            receiver[label.outcome] = count
    return found


def families(counts: Mapping[Label, int], health: Mapping[str, Any]) -> list[Family]:
    """List counters and gauges as metric families."""
    made = [
        Family(f"stepscope_hub_{outcome}", "counter", _HELP[outcome], _counted(counts, outcome)) for outcome in OUTCOMES
    ]
    for (part, field), (name, text) in _GAUGES.items():
        value = health.get(part, {}).get(field)
        if value is not None:
            made.append(Family(f"stepscope_hub_{name}", "gauge", text, [({}, value)]))
    made += _cluster(health.get("cluster"))
    made.append(Family("stepscope_hub_up", "gauge", "Whether the hub works.", [({}, health.get("status") == "ok")]))
    runs = [({"state": state}, count) for state, count in health.get("runs", {}).items()]
    return [*made, Family("stepscope_hub_runs", "gauge", "Run counts by state.", runs)]


def _cluster(cluster: Mapping[str, Any] | None) -> list[Family]:
    if cluster is None:
        return []
    values = {
        "cluster_shards": ("Shards of the store.", cluster["shards"]),
        "cluster_shards_missing": ("Shards of which no replica answers.", len(cluster["missing_shards"])),
        "cluster_servers_down": ("Servers of the store that do not answer.", len(cluster["servers_down"])),
        "cluster_zookeeper_up": ("Whether ZooKeeper answers the servers.", cluster["zookeeper"]),
    }
    return [Family(f"stepscope_hub_{name}", "gauge", text, [({}, value)]) for name, (text, value) in values.items()]


def _counted(counts: Mapping[Label, int], outcome: str) -> list[tuple[Mapping[str, str], int]]:
    return [
        ({"receiver": label.receiver, **({"reason": label.reason} if label.reason else {})}, count)
        for label, count in sorted(counts.items())
        if label.outcome == outcome
    ]
