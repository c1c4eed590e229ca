"""What was wrong with a step: the findings of the run that concern it, its alerts and its failed spans."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.shape import concerns, slow_finding
from stepscope.hub.questions.step_sql import StepView
from stepscope.hub.questions.traces import Node, build_trees, walk
from stepscope.model.names import SEVERITIES

_RECORDED = frozenset(("alert", "error"))
"""Kinds that the records of the step tell themselves."""
MOST_ALERTS, MOST_ERRORS = 20, 20


def step_findings(
    view: StepView, found: Sequence[Finding], alerts: Sequence[Mapping[str, Any]], lanes: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """List them; `alerts` and `lanes` are those of the step as JSON."""
    named = [
        _finding(each.kind, each.severity, each.text, each.ranks)
        for each in found
        if each.kind not in _RECORDED and concerns(each, view.step, view.attempt)
    ]
    return [*named, *_alerts(alerts), *_errors(lanes)]


def slow_step(view: StepView, found: Sequence[Finding]) -> dict[str, Any] | None:
    """Where the time of a step went, with the spans to blame: of the ranks at fault, those with most self time."""
    finding = slow_finding(list(found), view.step, view.attempt)
    if finding is None:
        return None
    worst: dict[int, Node] = {}
    for node in walk(build_trees(view.spans)):
        rank = node.row.rank
        if node.row.span.name == finding.span and (not finding.ranks or rank in finding.ranks):
            worst[rank] = max(worst.get(rank, node), node, key=lambda each: each.self_time)
    ids = [node.row.span.span_id.hex() for _, node in sorted(worst.items())]
    alone = finding.ranks[0] if len(finding.ranks) == 1 else None
    return {"text": finding.text, "span": finding.span, "rank": alone, "span_ids": ids}


def _finding(kind: str, severity: str, text: str, ranks: Sequence[int]) -> dict[str, Any]:
    return {"kind": kind, "severity": severity, "text": text, "rank": ranks[0] if len(ranks) == 1 else None}


def _alerts(alerts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One sentence for the alerts of a name, with the message of the most severe."""
    named: dict[str, list[Mapping[str, Any]]] = {}
    for alert in alerts:
        named.setdefault(alert["name"], []).append(alert)
    return [_alert(name, each) for name, each in list(named.items())[:MOST_ALERTS]]


def _alert(name: str, alerts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst = max(alerts, key=lambda alert: alert["severity_number"])
    ranks = sorted({alert["rank"] for alert in alerts})
    severity = "ERROR" if worst["severity_number"] >= SEVERITIES["ERROR"] else "WARN"
    where = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    message = f": {worst['body']}" if worst["body"] else ""
    return _finding("alert", severity, f"{name} on {where}{message}", ranks)


def _errors(lanes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    failed = [(lane["rank"], span) for lane in lanes for span in lane["spans"] if span["status"] == "error"]
    return [
        _finding("error", "ERROR", f"{span['name']} failed on rank {rank}{_after(span['message'])}", (rank,))
        for rank, span in failed[:MOST_ERRORS]
    ]


def _after(message: str) -> str:
    return f": {message}" if message else ""
