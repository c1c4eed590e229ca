"""Inputs and outputs of a run: datasets, models read, models written."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from stepscope.dialects.mlflow.receiver.errors import missing_value
from stepscope.dialects.mlflow.receiver.names_and_limits import check_length, check_run_id
from stepscope.dialects.mlflow.receiver.request_fields import Fields, item_text, step_number
from stepscope.dialects.mlflow.receiver.run_table import MlflowRun, find_run
from stepscope.dialects.mlflow.receiver.tracking import Call
from stepscope.model.redaction import redact

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
