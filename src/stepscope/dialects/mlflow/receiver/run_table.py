"""Runs in the tracking database: create, find, update; their params, tags and latest values."""

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from stepscope.dialects.mlflow.receiver.errors import MISSING, refused
from stepscope.dialects.mlflow.receiver.experiments import ACTIVE, find_active
from stepscope.dialects.mlflow.receiver.names_and_limits import Point
from stepscope.dialects.mlflow.receiver.tracking_rows import PARAMS, TAGS, add_row, find_row
from stepscope.extend.receiver import RunLink
from stepscope.model.records import word

NAME_TAG = "mlflow.runName"
STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
ENDED = STATUSES[2:]


class MlflowRun(Struct, frozen=True):
    """A row of the table runs; times are in milliseconds."""

    number: int
    run_id: str
    experiment: int
    name: str
    user_id: str
    status: str
    start_time: int
    end_time: int | None
    stage: str
    artifact_uri: str
    project: str
    attempt: int = 1


def create_run(db: sqlite3.Connection, run: MlflowRun, tags: Mapping[str, str], project: str | None) -> MlflowRun:
    """Create a run; a name and a tag mlflow.runName that differ are refused."""
    experiment = find_active(db, str(run.experiment), project)
    tagged = tags.get(NAME_TAG, "")
    if run.name and tagged and run.name != tagged:
        raise refused(
            "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values "
            f"(run_name='{run.name}', mlflow.runName='{tagged}')."
        )
    name = run.name or tagged or f"run-{run.run_id[:8]}"
    location = f"{experiment.artifacts.rstrip('/')}/{run.run_id}/artifacts"
    run = structs.replace(run, name=name, artifact_uri=location, project=project or experiment.name)
    run = structs.replace(run, number=add_row(db, "runs", run, "number"))
    set_tags(db, run, {**tags, NAME_TAG: name})
    return run


def find_run(db: sqlite3.Connection, run_id: str, project: str | None, *, active: bool = False) -> MlflowRun:
    """Return a run visible to the token's project; with `active`, a deleted one is refused."""
    run = find_row(db, MlflowRun, "runs", run_id=run_id)
    if run is None or project not in (None, run.project):
        raise refused(f"Run with id={run_id} not found", MISSING)
    if active and run.stage != ACTIVE:
        raise refused(f"The run {run_id} must be in the 'active' state. Current state is {run.stage}.")
    return run


AT_WORK = 10 * 60 * 1000
"""A run is active if it started or logged a metric at most this many milliseconds ago."""


def run_of_trace(db: sqlite3.Connection, run_id: str, experiment: str, now: int) -> RunLink | None:
    """Return the run of a trace: by its id, else the only RUNNING run of the experiment.

    With none or several, only the experiment is known. Programs that are killed leave their MLflow runs RUNNING.
    """
    if run_id:
        row = db.execute("SELECT run_id, project FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return RunLink(*row) if row is not None else None
    since = now - AT_WORK
    rows = db.execute(
        """SELECT run_id, project FROM runs AS r WHERE experiment = ? AND status = 'RUNNING' AND stage = 'active'
        AND (start_time > ? OR EXISTS (SELECT 1 FROM latest WHERE run = r.number AND timestamp > ?)) LIMIT 2""",
        (int(experiment[:18]), since, since),
    ).fetchall()
    if len(rows) == 1:
        return RunLink(*rows[0])
    named = db.execute("SELECT name FROM experiments WHERE id = ?", (int(experiment[:18]),)).fetchone()
    return RunLink("", str(named[0])) if named is not None else None


def update_run(db: sqlite3.Connection, run: MlflowRun, status: str, end: int | None, name: str) -> MlflowRun:
    """Change the given fields of a run; a run that is running again after its end starts a new attempt."""
    restarted = status == "RUNNING" and run.status in ENDED
    changed = structs.replace(
        run,
        status=status or run.status,
        end_time=run.end_time if end is None else end,
        name=name or run.name,
        attempt=run.attempt + restarted,
    )
    db.execute(
        "UPDATE runs SET status = ?, end_time = ?, name = ?, attempt = ? WHERE number = ?",
        (changed.status, changed.end_time, changed.name, changed.attempt, run.number),
    )
    if name:
        set_tags(db, changed, {NAME_TAG: name})
    return changed


def set_tags(db: sqlite3.Connection, run: MlflowRun, tags: Mapping[str, str]) -> None:
    """Set tags; mlflow.runName also renames the run."""
    TAGS.put(db, tags, run.number)
    if tags.get(NAME_TAG):
        db.execute("UPDATE runs SET name = ? WHERE number = ?", (tags[NAME_TAG], run.number))


def set_params(db: sqlite3.Connection, run: MlflowRun, params: Mapping[str, str], *, single: bool = False) -> None:
    """Log params; changing a value is refused, with a message for one or for many."""
    known = PARAMS.read(db, run.number) if params else {}
    changed = {key: value for key, value in params.items() if known.get(key, value) != value}
    for key, value in changed.items() if single else ():
        raise refused(
            f"Changing param values is not allowed. Param with key='{key}' was already logged with "
            f"value='{known[key]}' for run ID='{run.run_id}'. Attempted logging new value '{value}'."
        )
    if changed:
        changes = [{"key": key, "old_value": known[key], "new_value": value} for key, value in changed.items()]
        raise refused(
            f"Changing param values is not allowed. Params were already logged='{changes}' for run ID='{run.run_id}'."
        )
    PARAMS.put(db, {key: value for key, value in params.items() if key not in known}, run.number)


_NEWER = """ON CONFLICT (run, key) DO UPDATE
    SET value = excluded.value, timestamp = excluded.timestamp, step = excluded.step
    WHERE (excluded.step, excluded.timestamp, coalesce(excluded.value, 0))
        > (latest.step, latest.timestamp, coalesce(latest.value, 0))"""
_MAX_ROWS = 100
"""Rows per statement; one statement per row takes 50 % longer."""


def set_latest(db: sqlite3.Connection, run: MlflowRun, points: Sequence[Point]) -> None:
    """Keep the latest value of each metric: highest step, then latest time, then largest value."""
    newest = {point.key: point for point in points}
    if len(newest) < len(points):
        newest = {}
        for point in points:
            known = newest.get(point.key)
            if known is None or order(point) > order(known):
                newest[point.key] = point
    found = list(newest.values())
    for at in range(0, len(found), _MAX_ROWS):
        part = found[at : at + _MAX_ROWS]
        values: list[Any] = []
        for point in part:
            value = None if point.value != point.value else point.value
            values += (run.number, point.key, value, point.timestamp, point.step)
        db.execute(_insert_latest(len(part)), values)


@lru_cache(maxsize=_MAX_ROWS)
def _insert_latest(count: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * count)
    return f"INSERT INTO latest VALUES {rows} {_NEWER}"


def order(point: Point) -> tuple[int, int, float]:
    """Return the sort key that decides which of two values is newer; NaN counts as 0."""
    return point.step, point.timestamp, 0.0 if math.isnan(point.value) else point.value


def describe_info(run: MlflowRun) -> dict[str, Any]:
    """Return RunInfo in MLflow's JSON."""
    found = {
        "run_uuid": run.run_id,
        "experiment_id": str(run.experiment),
        "run_name": run.name,
        "user_id": run.user_id,
        "status": run.status,
        "start_time": run.start_time,
        "artifact_uri": run.artifact_uri,
        "lifecycle_stage": run.stage,
        "run_id": run.run_id,
    }
    return found if run.end_time is None else {**found, "end_time": run.end_time}


def json_number(value: float | None) -> float | str:
    """Format a value as in protobuf's JSON; None, the database's NaN, becomes "NaN"."""
    return "NaN" if value is None else word(value)


def describe_runs(
    db: sqlite3.Connection, runs: Sequence[MlflowRun], *, with_outputs: bool = True, with_models: bool = False
) -> list[dict[str, Any]]:
    """Return runs with their data in MLflow's JSON."""
    numbers = "(" + ",".join(str(run.number) for run in runs) + ")"
    data: dict[int, dict[str, list[dict[str, Any]]]] = {run.number: {} for run in runs}
    query = f"SELECT run, key, value, timestamp, step FROM latest WHERE run IN {numbers}"
    for run, key, value, timestamp, step in db.execute(query):
        point = {"key": key, "value": json_number(value), "timestamp": timestamp, "step": step}
        data[run].setdefault("metrics", []).append(point)
    for table in ("params", "tags"):
        for run, key, value in db.execute(f"SELECT run, key, value FROM {table} WHERE run IN {numbers}"):
            data[run].setdefault(table, []).append({"key": key, "value": value})
    inputs, outputs = _inputs(db, numbers, with_models=with_models)
    return [
        {
            "info": describe_info(run),
            "data": data[run.number],
            "inputs": inputs.get(run.number, {}),
            **({"outputs": outputs.get(run.number, {})} if with_outputs else {}),
        }
        for run in runs
    ]


Linked = dict[int, dict[str, list[Any]]]


def _inputs(db: sqlite3.Connection, numbers: str, *, with_models: bool) -> tuple[Linked, Linked]:
    inputs: Linked = {}
    outputs: Linked = {}
    for run, kept in db.execute(f"SELECT run, input FROM datasets WHERE run IN {numbers} ORDER BY rowid"):
        inputs.setdefault(run, {}).setdefault("dataset_inputs", []).append(msgspec.Raw(kept.encode()))
    query = f"SELECT run, kind, model, step FROM model_links WHERE run IN {numbers} ORDER BY rowid"
    for run, kind, model, step in db.execute(query):
        if kind == "output":
            made = {"model_id": model, "step": step}
            outputs.setdefault(run, {}).setdefault("model_outputs", []).append(made)
        elif with_models:
            inputs.setdefault(run, {}).setdefault("model_inputs", []).append({"model_id": model})
    return inputs, outputs


def set_model_metrics(db: sqlite3.Connection, run: MlflowRun, points: Iterable[Point]) -> None:
    """Keep the latest value of each metric of a logged model."""
    rows = [
        (
            *(point.model, run.run_id, point.key, None if math.isnan(point.value) else point.value),
            *(point.timestamp, point.step, point.dataset, point.digest),
        )
        for point in points
        if point.model
    ]
    db.executemany("INSERT OR REPLACE INTO model_metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
