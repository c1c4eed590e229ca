"""The endpoint of the pipeline: how sinks fare, and what was refused and set aside."""

from typing import Any

import msgspec

from stepscope.hub import delivery
from stepscope.hub.questions.endpoint import Endpoint, Reader
from stepscope.hub.questions.params import forbidden
from stepscope.hub.questions.schemas import COUNTS, INTEGER, SECONDS, TEXT, many, thing


def pipeline(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/pipeline`."""
    if reader.project is not None:
        raise forbidden("this is about all projects and this token reaches one only")
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
        "How the sinks of this home fare, and what was refused and set aside, the newest first.",
        pipeline,
        thing(
            sinks=many(
                thing(
                    host=TEXT, sink=TEXT, place=TEXT, counts=COUNTS, trouble=TEXT,
                    unread={"type": "integer", "description": "Bytes still to be delivered; -1 when not known."},
                    time=SECONDS,
                )
            ),
            quarantine=many(thing(id=TEXT, sink=TEXT, run=TEXT, records=INTEGER, time=SECONDS, reason=TEXT)),
            quarantined=INTEGER,
        ),
    ),
)  # fmt: skip
