"""What people expect: alerts and findings that their marks mute."""

from collections.abc import Collection, Iterable
from typing import Any

from stepscope.alerts.alert import Expected, Subject, finding_subject
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.shape import as_json, worst_first


def expected_by(about: Subject, project: str, marks: Iterable[Expected]) -> str:
    """Return who expects an alert or a finding with this subject; empty when nobody does."""
    for mark in marks:
        if mark.covers(about, project):
            return f"expected, says {mark.who}" if mark.who else "expected"
    return ""


def unexpected(found: Iterable[Finding], run: str, project: str, marks: Collection[Expected]) -> list[Finding]:
    """Return the findings of a run that nobody expects."""
    return [each for each in found if not expected_by(finding_subject(run, each), project, marks)]


def findings_json(
    found: Iterable[Finding], run: str, project: str, marks: Collection[Expected]
) -> list[dict[str, Any]]:
    """Return findings as JSON, worst first; the expected ones say so in `muted` and come last."""
    shown = [
        as_json(each, muted=expected_by(finding_subject(run, each), project, marks)) for each in worst_first(found)
    ]
    return sorted(shown, key=lambda each: bool(each["muted"]))
