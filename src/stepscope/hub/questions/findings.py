"""The endpoint of findings: what went wrong in a run, as it was diagnosed when its records were stored."""

from typing import Any

from stepscope.diagnosis.finding import SEVERITIES
from stepscope.diagnosis.registry import KINDS
from stepscope.diagnosis.shape import as_json
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.schemas import BOOLEAN, INTEGER, NUMBER, SECONDS, STEP, TEXT, list_of, nullable, object_of
from stepscope.hub.store.finding_catalog import read_findings


def answer(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/findings`."""
    number = reader.number(given["run"])
    share = reader.diagnosed(given["run"])
    found = read_findings(reader.engine, number)
    return {
        "run": given["run"],
        "complete": share >= 1.0,
        "progress": round(share, 3),
        "findings": [as_json(each) for each in found],
    }


FINDING_FIELDS = {
    "kind": {"type": "string", "examples": list(KINDS)},
    "severity": {"type": "string", "enum": list(reversed(SEVERITIES))},
    "text": TEXT, "step": STEP, "first_step": STEP, "last_step": STEP, "rank": nullable(INTEGER),
    "ranks": list_of(INTEGER), "key": nullable(TEXT), "also": list_of(TEXT), "span": nullable(TEXT),
    "attempt": nullable(INTEGER), "value": nullable(NUMBER),
    "usual": nullable(NUMBER), "expected": nullable(list_of(NUMBER)), "cause": TEXT, "advice": TEXT, "since": SECONDS,
    "symptoms": list_of(TEXT),
}  # fmt: skip

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/findings",
        "listFindings",
        "What went wrong in a run, worst first: where, since when, what was expected, the likely cause and what to do. "
        "`complete` is false while records that are stored are not diagnosed yet.",
        answer,
        object_of(
            run=TEXT, complete=BOOLEAN, progress={"type": "number"}, findings=list_of(object_of(**FINDING_FIELDS))
        ),
        (RUN,),
    ),
)
