"""Endpoints of findings: what went wrong in a run, as it was diagnosed when it was stored; marking it as expected."""

from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.alerts.alert import finding_subject, findings_json
from stepscope.diagnosis.findings_json import FindingJson
from stepscope.hub.questions.alerts.alert_states import MarkJson, alerting, mark_json
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader, decode_body
from stepscope.hub.refusals import not_found
from stepscope.hub.store.read.finding_catalog import read_findings


class FindingList(TypedDict):
    """The findings of a run."""

    run: str
    complete: bool
    progress: Annotated[float, Meta(description="The share of the stored records that is diagnosed.")]
    findings: list[FindingJson]


@Endpoint("/api/runs/{run}/findings", "listFindings", (RUN,))
def answer(reader: Reader, given: dict[str, Any]) -> FindingList:
    """What went wrong in a run, worst first: where, since when, what was expected, the likely cause and what to do.

    `complete` is false while records that are stored are not diagnosed yet. What a person marked as expected comes
    last, with `muted` set.
    """
    run = given["run"]
    number, marks = reader.number(run), reader.marks
    share = reader.diagnosed(run)
    found = read_findings(reader.engine, number)
    project = reader.recorded(run).project if found and marks else ""
    return {
        "run": run,
        "complete": share >= 1.0,
        "progress": round(share, 3),
        "findings": findings_json(found, run, project, marks),
    }


class ExpectedFinding(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that marks a finding as expected."""

    kind: str
    key: str | None = None
    span: str | None = None
    project: bool = False


@Endpoint("/api/runs/{run}/findings/expected", "expectFinding", (RUN,), method="POST", body=ExpectedFinding)
def expect(reader: Reader, given: dict[str, Any]) -> MarkJson:
    """Mark findings of this kind, metric and span as expected, in the run or in its whole project: they come last, are
    not counted and send no notifications. `DELETE /api/alerts/silences/{id}` undoes it.
    """
    known, run = alerting(reader), reader.recorded(given["run"])
    wanted = decode_body(ExpectedFinding, given["body"], '{"kind": "spike", "key": "loss", "project": false}')
    for each in read_findings(reader.engine, run.number):
        if (each.kind, each.key, each.span) == (wanted.kind, wanted.key, wanted.span):
            return mark_json(known.expect(finding_subject(run.id, each), run.project * wanted.project, reader.who))
    raise not_found(f"run {run.id} has no finding of the kind {wanted.kind[:200]!r} with that key and span")
