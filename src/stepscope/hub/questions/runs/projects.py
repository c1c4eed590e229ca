"""Projects: how many runs each has, how many of them are running, and what was found in them."""

from typing import Any

from stepscope.diagnosis.finding import SEVERITIES
from stepscope.hub.questions.toolbox.endpoint import Endpoint, Reader
from stepscope.hub.questions.toolbox.params import INTEGER, SECONDS, TEXT, list_of, nullable, object_of, seconds
from stepscope.hub.store.read.run_catalog import RunRow


def _severity(word: str) -> int:
    """The rank of a severity, the worst first."""
    return [str(each) for each in SEVERITIES].index(word)


def projects(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/projects`."""
    by_project: dict[str, list[RunRow]] = {}
    for row in reader.runs():
        if not row.archived:
            by_project.setdefault(row.project, []).append(row)
    status = reader.states.at_once()
    made = [
        {
            "project": project,
            "runs": len(rows),
            "running": sum(status(row).state == "running" for row in rows),
            "findings": sum(row.findings > 0 for row in rows),
            "worst": min((row.worst_finding for row in rows if row.worst_finding), key=_severity, default=None),
            "seen": seconds(max(row.seen for row in rows)),
        }
        for project, rows in by_project.items()
    ]
    return {"projects": sorted(made, key=lambda each: (-(each["seen"] or 0.0), each["project"]))}


ENDPOINTS = (
    Endpoint(
        "/api/projects",
        "listProjects",
        "The projects with the number of their runs, of those that are running and of those with findings, the one "
        "with the latest record first. Archived runs do not count.",
        projects,
        object_of(
            projects=list_of(
                object_of(
                    project=TEXT, runs=INTEGER, running=INTEGER, findings=INTEGER, worst=nullable(TEXT), seen=SECONDS
                )
            )
        ),
    ),
)
