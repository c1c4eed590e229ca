"""The `logged-models/` endpoints: create, finish, find, tag, delete, search."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepscope.dialects.mlflow.receiver.errors import MISSING, missing_value, refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import (
    ACTIVE,
    DELETED,
    check_active,
    experiment_number,
    find_experiment,
)
from stepscope.dialects.mlflow.receiver.filter_grammar import ATTRIBUTE, METRIC, PARAM, TAG, Clause
from stepscope.dialects.mlflow.receiver.model_filters import parse_model_filter
from stepscope.dialects.mlflow.receiver.names_and_limits import read_pairs
from stepscope.dialects.mlflow.receiver.request_fields import Fields, item_text
from stepscope.dialects.mlflow.receiver.run_search import (
    check_clauses,
    check_count,
    compare,
    page_token,
    pair_condition,
    read_offset,
)
from stepscope.dialects.mlflow.receiver.run_table import json_number
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
from stepscope.model.redaction import redact

STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
_BAD = ("/", ":", ".", "%", '"', "'")
_TABLES = {METRIC: "model_metrics", PARAM: "model_params", TAG: "model_tags"}
_COLUMNS = {
    "creation_time": "created",
    "creation_timestamp": "created",
    "creation_timestamp_ms": "created",
    "last_updated_timestamp": "updated",
    "last_updated_timestamp_ms": "updated",
    "model_id": "model_id",
    "model_type": "model_type",
    "name": "name",
    "source_run_id": "source_run",
    "status": "status",
}
_FIELDS = "model_id, experiment, name, artifact_uri, created, updated, model_type, status, stage, source_run, project"
MAX_MODELS = 100
_ORDER_FIELDS = ("field_name", "dataset_name", "dataset_digest")


def create(tracking: Tracking, call: Call) -> Reply:
    """Create a model with the status PENDING."""
    fields = call.fields
    text, name = fields.text("experiment_id", required=True), fields.optional_text("name")
    if name is not None and (not name or any(letter in name for letter in _BAD)):
        raise refused(
            f"Invalid model name ({name!r}) provided. Model name must be a non-empty string and cannot contain the "
            f"following characters: {_BAD}"
        )
    params, tags = read_pairs(fields, "params"), read_pairs(fields, "tags")
    model, now = f"m-{tracking.new_id()}", tracking.now
    with tracking.database.write() as db:
        experiment = find_experiment(db, text, call.project)
        check_active(experiment)
        place = f"{str(experiment[2]).rstrip('/')}/models/{model}/artifacts"
        row = (
            *(model, experiment[0], str(redact(name)) if name else f"model-{model[2:10]}", place, now, now),
            *(fields.text("model_type"), STATUSES[0], ACTIVE, fields.text("source_run_id")),
            call.project or str(experiment[1]),
        )
        db.execute(f"INSERT INTO models ({_FIELDS}) VALUES ({', '.join('?' for _ in row)})", row)
        set_pairs(db, "model_params", model, params)
        set_pairs(db, "model_tags", model, tags)
        return Reply({"model": _describe(db, [find(db, model, call.project)])[0]})


def find(db: sqlite3.Connection, model: str, project: str | None, *, deleted: bool = False) -> tuple[Any, ...]:
    """Return a model visible to the token's project."""
    row = db.execute(f"SELECT {_FIELDS} FROM models WHERE model_id = ?", (model,)).fetchone()
    if row is None or project not in (None, row[10]) or (row[8] == DELETED and not deleted):
        raise refused(f"Logged model with ID '{model}' not found.", MISSING)
    return tuple(row)


def get(tracking: Tracking, call: Call) -> Reply:
    """Return a model."""
    with tracking.database.read() as db:
        return Reply({"model": _describe(db, [find(db, call.path["model_id"], call.project)])[0]})


def finish(tracking: Tracking, call: Call) -> Reply:
    """Set the status of a model."""
    given = call.fields.values.get("status")
    status = STATUSES[given - 1] if type(given) is int and 1 <= given <= len(STATUSES) else given
    if not status:
        raise missing_value("status")
    if not isinstance(status, str) or status not in STATUSES:
        raise wrong_type("status", status)
    with tracking.database.write() as db:
        row = find(db, call.path["model_id"], call.project, deleted=True)
        db.execute("UPDATE models SET status = ?, updated = ? WHERE model_id = ?", (status, tracking.now, row[0]))
        return Reply({"model": _describe(db, [find(db, row[0], call.project, deleted=True)])[0]})


def delete(tracking: Tracking, call: Call) -> Reply:
    """Delete a model; its files stay."""
    with tracking.database.write() as db:
        row = find(db, call.path["model_id"], call.project, deleted=True)
        db.execute("UPDATE models SET stage = ?, updated = ? WHERE model_id = ?", (DELETED, tracking.now, row[0]))
    return Reply({})


def set_tags(tracking: Tracking, call: Call) -> Reply:
    """Set tags of a model."""
    return _set_pairs(tracking, call, "tags")


def log_params(tracking: Tracking, call: Call) -> Reply:
    """Log params of a model."""
    return _set_pairs(tracking, call, "params")


def _set_pairs(tracking: Tracking, call: Call, kind: str) -> Reply:
    pairs = read_pairs(call.fields, kind)
    with tracking.database.write() as db:
        row = find(db, call.path["model_id"], call.project, deleted=True)
        set_pairs(db, f"model_{kind}", row[0], pairs)
    return Reply({})


def delete_tag(tracking: Tracking, call: Call) -> Reply:
    """Remove a tag of a model."""
    model, key = call.path["model_id"], call.path["key"]
    with tracking.database.write() as db:
        row = find(db, model, call.project, deleted=True)
        if not db.execute("DELETE FROM model_tags WHERE model = ? AND key = ?", (row[0], key)).rowcount:
            raise refused(f"No tag with key {key!r} found for model with ID {model!r}.", MISSING)
    return Reply({})


def set_pairs(db: sqlite3.Connection, table: str, model: str, pairs: Mapping[str, str]) -> None:
    """Set tags or params of a model."""
    db.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", [(model, *pair) for pair in pairs.items()])


def search(tracking: Tracking, call: Call) -> Reply:
    """Return a page of models, newest first unless ordered otherwise."""
    fields = call.fields
    limit = fields.whole("max_results")
    limit = MAX_MODELS if limit is None else limit
    if limit:
        check_count(limit)
    if not fields.ids("experiment_ids"):
        raise missing_value("experiment_ids")
    offset = read_offset(fields.text("page_token"))
    numbers = ", ".join(str(experiment_number(each)) for each in fields.ids("experiment_ids"))
    conditions, values = [f"m.stage = '{ACTIVE}'", f"m.experiment IN ({numbers})"], []
    if call.project is not None:
        conditions.append("m.project = ?")
        values.append(call.project)
    clauses = parse_model_filter(fields.text("filter"), _COLUMNS)
    check_clauses(clauses, [*fields.items("order_by"), *fields.items("datasets")])
    datasets = _datasets(fields)
    for clause in clauses:
        test, given = _condition(clause, datasets)
        conditions.append(test)
        values += given
    if datasets and METRIC not in [clause.kind for clause in clauses]:
        conditions.append(f"EXISTS (SELECT 1 FROM model_metrics AS t WHERE t.model = m.model_id AND {datasets.test})")
        values += datasets.values
    terms, named = _order(fields)
    with tracking.database.read() as db:
        rows = db.execute(
            f"SELECT {', '.join(f'm.{name}' for name in _FIELDS.split(', '))} FROM models AS m "
            f"WHERE {' AND '.join(conditions)} ORDER BY {terms} LIMIT ? OFFSET ?",
            [*values, *named, limit + 1, offset],
        ).fetchall()
        body = {"models": _describe(db, rows[:limit])} if rows else {}
    return Reply({**body, "next_page_token": page_token(offset + limit)} if len(rows) > limit else body)


class _Datasets(NamedTuple):
    """The condition that a metric was logged on one of some datasets."""

    test: str
    values: list[str]


def _datasets(fields: Fields) -> _Datasets | None:
    """Read the datasets of a search; as in MLflow, one without a digest means metrics that have none."""
    pairs = []
    for at, item in enumerate(fields.items("datasets")):
        name, digest = (item_text(item, each, f"datasets[{at}]") for each in ("dataset_name", "dataset_digest"))
        if not name:
            raise refused("`dataset_name` in the `datasets` clause must be specified.")
        pairs += [name, digest]
    test = " OR ".join(["(t.dataset = ? AND t.digest = ?)"] * (len(pairs) // 2))
    return _Datasets(f"({test})", pairs) if pairs else None


def _condition(clause: Clause, datasets: _Datasets | None) -> tuple[str, list[Any]]:
    if clause.kind == ATTRIBUTE:
        return compare(f"m.{_COLUMNS[clause.key]}", clause)
    table = f"{_TABLES[clause.kind]} AS t WHERE t.model = m.model_id"
    if clause.kind != METRIC or datasets is None:
        return pair_condition(table, clause.key, clause)
    test, values = pair_condition(f"{table} AND {datasets.test}", clause.key, clause)
    return test, [*datasets.values, *values]


def _order(fields: Fields) -> tuple[str, list[str]]:
    terms, values = [], []
    for at, item in enumerate(fields.items("order_by")):
        path = f"order_by[{at}]"
        name, dataset, digest = (item_text(item, each, path) for each in _ORDER_FIELDS)
        if item.get("ascending") not in (None, True, False):
            raise wrong_type(f"{path}.ascending", item["ascending"])
        turn = "DESC" if item.get("ascending") is False else "ASC"
        kind, dot, key = name.partition(".")
        if kind == "metrics" and dot:
            value = (
                "(SELECT t.value FROM model_metrics AS t WHERE t.model = m.model_id AND t.key = ?"
                f"{' AND t.dataset = ?' if dataset else ''}{' AND t.digest = ?' if digest else ''} "
                "ORDER BY t.timestamp DESC, t.step DESC, t.run LIMIT 1)"
            )
            terms += [f"{value} IS NULL", f"{value} {turn}"]
            values += [key, *filter(None, (dataset, digest))] * 2
        elif name in _COLUMNS:
            terms.append(f"m.{_COLUMNS[name]} {turn}")
        elif not name:
            raise missing_value(f"{path}.field_name")
        else:
            raise refused(f"Invalid order by field name: {name}{'. Only metrics are supported.' if dot else ''}")
    return ", ".join([*terms, "m.created DESC", "m.model_id"]), values


def _describe(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    found = []
    for model, experiment, name, place, created, updated, model_type, status, _, source, _ in rows:
        info: dict[str, Any] = {
            "model_id": model,
            "experiment_id": str(experiment),
            "name": name,
            "creation_timestamp_ms": created,
            "last_updated_timestamp_ms": updated,
            "artifact_uri": place,
            "status": status,
            "model_type": model_type,
            "source_run_id": source,
        }
        pairs = {kind: _pairs(db, f"model_{kind}", model) for kind in ("tags", "params")}
        info |= {"tags": pairs["tags"]} if pairs["tags"] else {}
        data: dict[str, Any] = {"params": pairs["params"]} if pairs["params"] else {}
        metrics = _metrics(db, model)
        found.append({"info": info, "data": {**data, "metrics": metrics} if metrics else data})
    return found


def _pairs(db: sqlite3.Connection, table: str, model: str) -> list[dict[str, str]]:
    rows = db.execute(f"SELECT key, value FROM {table} WHERE model = ?", (model,))
    return [{"key": key, "value": value} for key, value in rows]


def _metrics(db: sqlite3.Connection, model: str) -> list[dict[str, Any]]:
    rows = db.execute(
        "SELECT key, value, timestamp, step, dataset, digest, run FROM model_metrics WHERE model = ?", (model,)
    )
    found = []
    for key, value, timestamp, step, dataset, digest, run in rows:
        point = {
            "key": key,
            "value": json_number(value),
            "timestamp": timestamp,
            "step": step,
            "model_id": model,
            "run_id": run,
        }
        point |= {"dataset_name": dataset} if dataset else {}
        found.append({**point, "dataset_digest": digest} if digest else point)
    return found
