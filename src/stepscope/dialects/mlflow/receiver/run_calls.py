"""The endpoints under `runs/`, with the datasets and models that runs read and wrote."""

import json
import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any

from stepscope.dialects.mlflow.receiver import run_records
from stepscope.dialects.mlflow.receiver import run_table as mlflow_runs
from stepscope.dialects.mlflow.receiver.errors import MISSING, missing_value, refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import ACTIVE, DELETED, experiment_number
from stepscope.dialects.mlflow.receiver.names_and_limits import (
    LogBatch,
    check_length,
    check_run_id,
    checked_param,
    checked_tag,
    read_batch,
    read_pairs,
    read_point,
)
from stepscope.dialects.mlflow.receiver.request_fields import Fields, item_text, step_number
from stepscope.dialects.mlflow.receiver.run_table import ENDED, STATUSES, MlflowRun, find_run
from stepscope.dialects.mlflow.receiver.tracking import Body, Call, Reply, Tracking
from stepscope.dialects.mlflow.receiver.tracking_rows import TAGS
from stepscope.model.records import Record
from stepscope.model.redaction import redact

MODELS_TAG = "mlflow.log-model.history"


def create(tracking: Tracking, call: Call) -> Reply:
    """Create a run."""
    fields = call.fields
    tags = read_pairs(fields)
    wanted = MlflowRun(
        number=0,
        run_id=tracking.new_id(),
        experiment=experiment_number(fields.text("experiment_id") or "0"),
        name=str(redact(fields.text("run_name"))),
        user_id=fields.text("user_id"),
        status="RUNNING",
        start_time=fields.whole("start_time") or 0,
        end_time=None,
        stage=ACTIVE,
        artifact_uri="",
        project="",
    )
    tracking.admit_run(wanted.run_id)
    with tracking.database.write() as db:
        run = mlflow_runs.create_run(db, wanted, tags, call.project)
        records = tracking.record_start(db, run)
        described = mlflow_runs.describe_runs(db, [run], with_outputs=False)[0]
    return Reply({"run": described}, [tracking.submit(run, records, call.project)], run.run_id)


def get(db: sqlite3.Connection, call: Call) -> Body:
    """Return a run with its data."""
    run = find_run(db, call.fields.run(), call.project)
    return {"run": mlflow_runs.describe_runs(db, [run], with_models=True)[0]}


def update(tracking: Tracking, call: Call) -> Reply:
    """Change the status, the end or the name of a run."""
    fields = call.fields
    run_id, end, name = fields.run(), fields.whole("end_time"), str(redact(fields.text("run_name")))
    with tracking.database.write() as db:
        known = find_run(db, run_id, call.project, active=True)
        status = _status(fields.values.get("status"))
        run = mlflow_runs.update_run(db, known, status, end, name)
        records = tracking.record_start(db, run) if run.attempt > known.attempt else []
    records += run_records.edited({mlflow_runs.NAME_TAG: name}, tracking.clock()) if name else []
    safe = [tracking.submit(run, records, call.project)]
    if run.status in ENDED and (status or run != known):  # also when repeated: the end may not have been journaled
        ended = [run_records.finished(run, tracking.clock())]
        sent = f"finished {run.attempt} {run.status} {run.end_time}"
        is_corrected = known.status in ENDED and run.status != known.status
        submitted = tracking.submit if is_corrected else partial(tracking.submit_once, sent=sent)
        safe.append(submitted(run, ended, call.project))
    return Reply({"run_info": mlflow_runs.describe_info(run)}, safe, run_id)


def _status(given: Any) -> str:
    """Return a status given by name or number; empty when it is missing or an unknown name, which changes nothing."""
    if type(given) is int and 1 <= given <= len(STATUSES):
        return STATUSES[given - 1]
    if given is not None and not isinstance(given, str):
        raise wrong_type("status", given)
    return given if given in STATUSES else ""


def move(stage: str, tracking: Tracking, call: Call) -> Reply:
    """Delete a run, which is archived in the hub and can be restored, or restore it."""
    run_id = call.fields.run()
    with tracking.database.write() as db:
        run = find_run(db, run_id, call.project)
        db.execute("UPDATE runs SET stage = ? WHERE number = ?", (stage, run.number))
    records = [run_records.archived(tracking.clock(), archived=stage == DELETED)]
    return Reply({}, [tracking.submit(run, records, call.project)], run_id)


def log_metric(tracking: Tracking, call: Call) -> Reply:
    """Log one value."""
    return tracking.log(*read_point(call.fields), call.project)


def log_batch(tracking: Tracking, call: Call) -> Reply:
    """Log metrics, params and tags atomically."""
    return tracking.log(*read_batch(call.fields), call.project)


def log_parameter(tracking: Tracking, call: Call) -> Reply:
    """Log one param."""
    fields = call.fields
    run_id, key, value = fields.run(), fields.required("key"), fields.text("value")
    params = dict([checked_param(key, value)])
    return tracking.log(run_id, LogBatch((), params, {}), call.project, single=True)


def set_tag(tracking: Tracking, call: Call) -> Reply:
    """Set one tag."""
    fields = call.fields
    run_id, key, value = fields.run(), fields.required("key"), fields.text("value")
    return tracking.log(run_id, LogBatch((), {}, dict([checked_tag(key, value)])), call.project)


def log_model(db: sqlite3.Connection, call: Call) -> None:
    """Add a model to the tag mlflow.log-model.history, for clients before MLflow 3."""
    run_id, text = call.fields.run(), call.fields.required("model_json")
    try:
        model = json.loads(text)
    except (ValueError, RecursionError):
        raise refused(f"Malformed model info. \n {text} \n is not a valid JSON.") from None
    missing = {"artifact_path", "flavors", "utc_time_created", "run_id"} - set(model if isinstance(model, dict) else ())
    if missing:
        raise refused(f"Model json is missing mandatory fields: {missing}")
    entry = {key: value for key, value in model.items() if key not in ("mlflow_version", "saved_input_example_info")}
    run = find_run(db, run_id, call.project, active=True)
    before = TAGS.read(db, run.number).get(MODELS_TAG, "[]")
    mlflow_runs.set_tags(db, run, dict([checked_tag(MODELS_TAG, json.dumps([*_listed(before), redact(entry)]))]))


def _listed(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, list) else []


def delete_tag(tracking: Tracking, call: Call) -> Reply:
    """Remove one tag."""
    run_id, key = call.fields.run(), call.fields.required("key")
    with tracking.database.write() as db:
        run = find_run(db, run_id, call.project, active=True)
        if not TAGS.delete(db, key, run.number):
            raise refused(f"No tag with name: {key} in run with id {run.run_id}", MISSING)
    records: list[Record] = run_records.edited({key: None}, tracking.clock())
    return Reply({}, [tracking.submit(run, records, call.project)], run_id)


_LONGEST = {"name": 500, "digest": 36, "source": 65_535, "schema": 1_048_575, "profile": 16_777_215}
_FIELDS = ("name", "digest", "source_type", "source", "schema", "profile")
_CONTEXT = "mlflow.data.context"
READ, WRITTEN = "input", "output"


def log_inputs(db: sqlite3.Connection, call: Call) -> None:
    """Record the datasets and models that a run uses; the same dataset is recorded once."""
    fields = call.fields
    run_id = fields.run()
    check_run_id(run_id)
    datasets = [_dataset(item, f"datasets[{at}]") for at, item in enumerate(fields.items("datasets"))]
    models = _model_ids(fields)
    run = find_run(db, run_id, call.project, active=True)
    for dataset, tags in datasets:
        words = {tag["key"]: tag["value"] for tag in tags}
        kept = json.dumps({"tags": tags, "dataset": dataset} if tags else {"dataset": dataset})
        row = (run.number, dataset["name"], dataset["digest"], words.get(_CONTEXT), kept)
        db.execute("INSERT OR IGNORE INTO datasets VALUES (?, ?, ?, ?, ?)", row)
    _link(db, run, READ, [(model, None) for model in models])


def log_outputs(db: sqlite3.Connection, call: Call) -> None:
    """Record the models that a run wrote, each with its step."""
    fields = call.fields
    run_id = fields.run()
    items = fields.items("models")
    if "models" not in fields.values:
        raise missing_value("models")
    models = _model_ids(fields)
    steps = [step_number(f"models[{at}].step", item.get("step")) for at, item in enumerate(items)]
    run = find_run(db, run_id, call.project, active=True)
    _link(db, run, WRITTEN, list(zip(models, steps, strict=True)))


def _dataset(item: Mapping[str, Any], path: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    given = item.get("dataset")
    given = given if isinstance(given, dict) else {}
    dataset = {name: item_text(given, name, f"{path}.dataset") for name in _FIELDS}
    for name, longest in _LONGEST.items():
        check_length(name, longest, dataset[name])
    tags = Fields(item).items("tags")
    found = [{"key": item_text(tag, "key", path), "value": item_text(tag, "value", path)} for tag in tags]
    for tag in found:
        check_length("key", 255, tag["key"])
        check_length("value", 500, tag["value"])
    optional = {name: text for name, text in dataset.items() if text or name in _FIELDS[:4]}
    return redact(optional), redact(found)


def _model_ids(fields: Fields) -> list[str]:
    return [item_text(item, "model_id", f"models[{at}]") for at, item in enumerate(fields.items("models"))]


def _link(db: sqlite3.Connection, run: MlflowRun, kind: str, models: list[tuple[str, int | None]]) -> None:
    rows = [(run.number, kind, model, step) for model, step in models]
    db.executemany("INSERT INTO model_links VALUES (?, ?, ?, ?)", rows)
