"""The pipeline: delivery status of the sinks, and quarantined records."""

from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.hub.questions.toolbox.endpoint import Endpoint, Reader
from stepscope.hub.refusals import forbidden
from stepscope.journal.quarantine import Quarantine, quarantined
from stepscope.model.records import Seconds

MAX_ENTRIES = 200


class SinkReport(msgspec.Struct, frozen=True):
    """The latest report of a shipper about a sink."""

    sink: str
    host: str = ""
    place: str = ""
    counts: dict[str, int] = {}
    problem: str = msgspec.field(default="", name="trouble")
    unread: Annotated[int, Meta(description="Bytes still to be delivered; -1 when not known.")] = 0
    time: Seconds = 0.0


class QuarantinedBatch(msgspec.Struct, frozen=True):
    """Records that were quarantined together."""

    id: str
    sink: str
    run: str
    records: int
    time: Annotated[float, Meta(description="Seconds since 1970.")]
    reason: str


_decode = msgspec.json.Decoder(SinkReport).decode


def sinks(home: Path) -> list[SinkReport]:
    """The latest report of each sink on each host; one that cannot be read is left out."""
    found = []
    for path in sorted((home / "shipping").glob("*.report")):
        try:
            host = path.stem.rpartition("@")[2]
            found.append(msgspec.structs.replace(_decode(path.read_bytes()), host=host))
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
                entry.id, sink, entry.batch.writer.run, entry.note.records, _rounded(entry.note.time), entry.note.reason
            )
            for entry in aside.entries()
        ]
        found += [
            QuarantinedBatch(bad.id, sink, bad.run, bad.note.records if bad.note else 0, _rounded(bad.time), bad.about)
            for bad in aside.unreadable()
        ]
    found.sort(key=lambda entry: -entry.time)
    return found[:MAX_ENTRIES], len(found)


def _rounded(ns: int) -> float:
    return round(ns / 1e9, 3)


class Pipeline(TypedDict):
    """Delivery status of sinks, and quarantined records, the newest first."""

    sinks: list[SinkReport]
    quarantine: list[QuarantinedBatch]
    quarantined: int


@Endpoint("/api/pipeline", "readPipeline")
def pipeline(reader: Reader, given: dict[str, Any]) -> Pipeline:
    """Delivery status of the sinks of this home, and quarantined records, the newest first."""
    if reader.project is not None:
        raise forbidden("the pipeline serves all projects, and this token is limited to one")
    if reader.home is None:
        return {"sinks": [], "quarantine": [], "quarantined": 0}
    entries, total = refused(reader.home)
    return {"sinks": sinks(reader.home), "quarantine": entries, "quarantined": total}
