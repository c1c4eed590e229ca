"""What the hub says of itself: counters, lag, rates and sizes, as JSON and as Prometheus text."""

from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.hub.tallies import OUTCOMES, Label

_HELP = {
    "written": "Records in the hub's journal and acknowledged.",
    "stored": "Records in the store.",
    "retried": "Requests or batches that were asked to come again.",
    "rejected": "Records refused for ever.",
    "dropped": "Records or attributes lost on the way.",
}
_GAUGES = {
    ("journal", "bytes"): "stepscope_hub_journal_bytes",
    ("journal", "waiting_bytes"): "stepscope_hub_queue_bytes",
    ("lag", "bytes"): "stepscope_hub_lag_bytes",
    ("lag", "seconds"): "stepscope_hub_lag_seconds",
    ("store", "records_per_second"): "stepscope_hub_insert_rate",
    ("store", "bytes"): "stepscope_hub_store_bytes",
    ("folder", "writers"): "stepscope_hub_folder_writers",
}


def outcomes(counts: Mapping[Label, int]) -> dict[str, Any]:
    """Sort counters by receiver and outcome; those with reasons by reason."""
    found: dict[str, Any] = {}
    for label, count in sorted(counts.items()):
        receiver = found.setdefault(label.receiver, {})
        if label.reason:
            receiver.setdefault(label.outcome, {})[label.reason] = count
        else:
            receiver[label.outcome] = count
    return found


def prometheus(counts: Mapping[Label, int], health: Mapping[str, Any]) -> str:
    """Write counters and gauges in the text format of Prometheus."""
    return "\n".join((*_counters(counts), *_gauges(health), ""))


def _counters(counts: Mapping[Label, int]) -> Iterator[str]:
    for outcome in OUTCOMES:
        name = f"stepscope_hub_{outcome}_total"
        yield f"# HELP {name} {_HELP[outcome]}"
        yield f"# TYPE {name} counter"
        for label, count in sorted(counts.items()):
            if label.outcome == outcome:
                reason = f',reason="{_escaped(label.reason)}"' if label.reason else ""
                yield f'{name}{{receiver="{_escaped(label.receiver)}"{reason}}} {count}'


def _gauges(health: Mapping[str, Any]) -> Iterator[str]:
    for (part, field), name in _GAUGES.items():
        value = health.get(part, {}).get(field)
        if value is not None:
            yield f"# TYPE {name} gauge"
            yield f"{name} {value}"
    yield "# TYPE stepscope_hub_up gauge"
    yield f"stepscope_hub_up {int(health.get('status') == 'ok')}"
    yield "# TYPE stepscope_hub_runs gauge"
    for state, count in health.get("runs", {}).items():
        yield f'stepscope_hub_runs{{state="{state}"}} {count}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
