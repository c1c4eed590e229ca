"""How deliveries from this home fare: the reports that shippers leave, and what sinks refused."""

from pathlib import Path

import msgspec

from stepscope.journal.quarantine import Quarantine, quarantined

MOST_LOTS = 200


class SinkReport(msgspec.Struct, frozen=True):
    """What a shipper last wrote of a sink; its other fields are its own."""

    sink: str
    place: str = ""
    counts: dict[str, int] = {}
    trouble: str = ""
    unread: int = 0
    time: float = 0.0


class RefusedLot(msgspec.Struct, frozen=True):
    """Records that were set aside together."""

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


def refused(home: Path) -> tuple[list[RefusedLot], int]:
    """The newest lots that sinks, the store among them, refused, damaged ones too, and how many there are."""
    found = []
    for sink in quarantined(home):
        aside = Quarantine(home, sink)
        found += [
            RefusedLot(lot.id, sink, lot.batch.writer.run, lot.note.records, lot.note.time, lot.note.reason)
            for lot in aside.lots()
        ]
        found += [
            RefusedLot(bad.id, sink, bad.run, bad.note.records if bad.note else 0, bad.time, bad.about)
            for bad in aside.unreadable()
        ]
    found.sort(key=lambda lot: -lot.time)
    return found[:MOST_LOTS], len(found)
