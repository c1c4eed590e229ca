"""The pipeline: delivery status of the sinks, and quarantined records."""

from typing import Any

import msgspec

from stepscope.hub import delivery
from stepscope.hub.questions.endpoint import Endpoint, Reader
from stepscope.hub.questions.params import forbidden
from stepscope.hub.questions.schemas import COUNTS, INTEGER, SECONDS, TEXT, list_of, object_of


def pipeline(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/pipeline`."""
    if reader.project is not None:
        raise forbidden("the pipeline serves all projects, and this token is limited to one")
    if reader.home is None:
        return {"sinks": [], "quarantine": [], "quarantined": 0}
    lots, total = delivery.refused(reader.home)
    return {
        "sinks": [{"host": host, **msgspec.to_builtins(report)} for host, report in delivery.sinks(reader.home)],
        "quarantine": [{**msgspec.to_builtins(lot), "time": round(lot.time / 1e9, 3)} for lot in lots],
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
