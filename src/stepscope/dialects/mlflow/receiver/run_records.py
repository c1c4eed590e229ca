"""An MLflow run as Stepscope records: writer, metrics, and the events of start, edit and end."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.dialects.mlflow.receiver.names_and_limits import Point
from stepscope.dialects.mlflow.receiver.run_table import NAME_TAG, MlflowRun
from stepscope.model.names import ATTR_RECEIVED_FROM, EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.model.run_description import LONGEST_NAME, LONGEST_NOTES, LONGEST_TAG

MILLION = 1_000_000
_LATEST = 2**63 - 1
STATUSES = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "preempted"}
_NOTE = "mlflow.note.content"
_STARTED = {
    "mlflow.user": "user",
    "mlflow.source.name": "program",
    "mlflow.source.type": "source",
    "mlflow.source.git.commit": "git.commit",
    "mlflow.source.git.branch": "git.branch",
    "mlflow.source.git.repoURL": "git.remote",
    "mlflow.parentRunId": "parent",
    "mlflow.project.entryPoint": "entry_point",
}
"""MLflow's tags about how a run was started, and our attributes for them."""


def writer_of(run: MlflowRun) -> Writer:
    """Return the writer of a run, shared by all its clients."""
    return Writer(
        id=f"mlflow-{run.attempt}-{run.run_id}",
        run=run.run_id,
        project=run.project,
        name=run.name[:LONGEST_NAME],
        attempt=run.attempt,
        wall_ns=nanoseconds(run.start_time),
        resource={"mlflow.experiment_id": str(run.experiment)},
    )


def nanoseconds(milliseconds: int) -> int:
    """Convert milliseconds to nanoseconds, clamped to int64 (the year 2262)."""
    return min(max(milliseconds, 0) * MILLION, _LATEST)


def metrics(points: Sequence[Point]) -> list[Record]:
    """Group values by step and time into records; a repeated key starts another record."""
    moments = {(point.timestamp, point.step) for point in points}
    only = {point.key: point.value for point in points}
    if len(moments) == 1 and len(only) == len(points):  # the usual batch
        time, step = moments.pop()
        return [Metric(nanoseconds(time), step, None, None, dict(only))]
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for point in points:
        turn = 0
        while point.key in (values := found.setdefault((point.timestamp, point.step, turn), {})):
            turn += 1
        values[point.key] = point.value
    return [Metric(nanoseconds(time), step, None, None, values) for (time, step, _), values in found.items()]


def started(params: Mapping[str, str], tags: Mapping[str, str], now: int) -> Event:
    """Return a start event with the current configuration and tags; a later one replaces it."""
    attrs: dict[str, Any] = {"config": {key: literal(value) for key, value in params.items()}}
    attrs |= {name: tags[tag] for tag, name in _STARTED.items() if tags.get(tag)}
    attrs |= {"tags": shown} if (shown := {key: value for key, value in tags.items() if is_shown(key)}) else {}
    attrs |= {"notes": tags[_NOTE][:LONGEST_NOTES]} if tags.get(_NOTE) else {}
    return Event(now, None, None, None, None, 9, EVENT_STARTED, {**attrs, ATTR_RECEIVED_FROM: "mlflow"})


def edited(tags: Mapping[str, str | None], now: int) -> list[Record]:
    """Return the edit event for tags that were set or, with None, deleted; MLflow's internal tags are left out."""
    attrs: dict[str, Any] = {}
    shown = {key: value if value is None else value[:LONGEST_TAG] for key, value in tags.items() if is_shown(key)}
    if shown:
        attrs["tags"] = shown
    if _NOTE in tags:
        attrs["notes"] = (tags[_NOTE] or "")[:LONGEST_NOTES]
    if name := tags.get(NAME_TAG):
        attrs["name"] = name[:LONGEST_NAME]
    return [Event(now, None, None, None, None, 9, EVENT_EDITED, attrs)] if attrs else []


def archived(now: int, *, archived: bool) -> Event:
    """Return the edit event that archives or restores a run."""
    return Event(now, None, None, None, None, 9, EVENT_EDITED, {"archived": archived})


def finished(run: MlflowRun, now: int) -> Event:
    """Return the end event of a run."""
    time = nanoseconds(run.end_time) if run.end_time else now
    severity = 17 if run.status == "FAILED" else 9
    return Event(time, None, None, None, None, severity, EVENT_FINISHED, {"status": STATUSES[run.status]})


def is_shown(tag: str) -> bool:
    """Return whether a tag is a user's own and not internal to MLflow."""
    return not tag.startswith("mlflow.") and len(tag) <= LONGEST_TAG


def literal(text: str) -> Any:
    """Parse a param that is a Python number or bool; otherwise return its text."""
    if text in ("True", "False"):
        return text == "True"
    for read in (int, float):
        try:
            value = read(text)
        except ValueError:
            continue
        if str(value) == text:
            return value
    return text
