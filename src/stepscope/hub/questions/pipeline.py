"""The pipeline: delivery status of the sinks, and quarantined records."""

from pathlib import Path
from typing import Any

import msgspec

from stepscope.hub.questions.toolbox.endpoint import Endpoint, Reader
from stepscope.hub.questions.toolbox.params import COUNTS, INTEGER, SECONDS, TEXT, forbidden, list_of, object_of
from stepscope.journal.quarantine import Quarantine, quarantined

MAX_ENTRIES = 200


class SinkReport(msgspec.Struct, frozen=True):
    """The latest report of a shipper about a sink; its other fields are passed through."""

    sink: str
    place: str = ""
    counts: dict[str, int] = {}
    problem: str = msgspec.field(default="", name="trouble")
    unread: int = 0
    time: float = 0.0


class QuarantinedBatch(msgspec.Struct, frozen=True):
    """Records that were quarantined together."""

    id: str
    sink: str
    run: str
    records: int
    time: int
    reason: str


_decode = msgspec.json.Decoder(SinkReport).decode


def sinks(home: Path) -> list[tuple[str, SinkReport]]:
    """The latest report of each sink on each host; one that cannot be read is left out."""
    found = []
    for path in sorted((home / "shipping").glob("*.report")):
        try:
            found.append((path.stem.rpartition("@")[2], _decode(path.read_bytes())))
        except (OSError, ValueError):
            continue
    return found


def refused(home: Path) -> tuple[list[QuarantinedBatch], int]:
    """The newest entries that sinks, the store among them, refused, damaged ones too, and how many there are."""
    found = []
    for sink in quarantined(home):
        aside = Quarantine(home, sink)
        found += [
            QuarantinedBatch(
                entry.id, sink, entry.batch.writer.run, entry.note.records, entry.note.time, entry.note.reason
            )
            for entry in aside.entries()
        ]
        found += [
            QuarantinedBatch(bad.id, sink, bad.run, bad.note.records if bad.note else 0, bad.time, bad.about)
            for bad in aside.unreadable()
        ]
    found.sort(key=lambda entry: -entry.time)
    return found[:MAX_ENTRIES], len(found)


def pipeline(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/pipeline`."""
    if reader.project is not None:
        raise forbidden("the pipeline serves all projects, and this token is limited to one")
    if reader.home is None:
        return {"sinks": [], "quarantine": [], "quarantined": 0}
    entries, total = refused(reader.home)
    return {
        "sinks": [{"host": host, **msgspec.to_builtins(report)} for host, report in sinks(reader.home)],
        "quarantine": [{**msgspec.to_builtins(entry), "time": round(entry.time / 1e9, 3)} for entry in entries],
        "quarantined": total,
    }


ENDPOINTS = (
    Endpoint(
        "/api/pipeline",
        "readPipeline",
        "Delivery status of the sinks of this home, and quarantined records, the newest first.",
        pipeline,
        object_of(
            sinks=list_of(
                object_of(
                    host=TEXT, sink=TEXT, place=TEXT, counts=COUNTS, trouble=TEXT,
                    unread={"type": "integer", "description": "Bytes still to be delivered; -1 when not known."},
                    time=SECONDS,
                )
            ),
            quarantine=list_of(object_of(id=TEXT, sink=TEXT, run=TEXT, records=INTEGER, time=SECONDS, reason=TEXT)),
            quarantined=INTEGER,
        ),
    ),
)  # fmt: skip
