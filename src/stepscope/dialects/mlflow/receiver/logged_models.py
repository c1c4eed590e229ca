"""The `logged-models/` endpoints: create, finish, find, tag, delete, search with filter strings of their own."""

import re
import sqlite3
from collections.abc import Collection
from typing import Any, NamedTuple

from msgspec import Struct
from sqlparse.exceptions import SQLParseError
from sqlparse.sql import Comparison

from stepscope.dialects.mlflow.receiver import filter_grammar as grammar
from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import MISSING, missing_value, refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import ACTIVE, DELETED, experiment_number, find_active
from stepscope.dialects.mlflow.receiver.names_and_limits import read_pairs
from stepscope.dialects.mlflow.receiver.request_fields import Fields, item_text
from stepscope.dialects.mlflow.receiver.run_table import json_number
from stepscope.dialects.mlflow.receiver.tracking import Body, Call, Reply, Tracking
from stepscope.dialects.mlflow.receiver.tracking_rows import (
    MODEL_PARAMS,
    MODEL_TAGS,
    Pairs,
    add_row,
    columns_of,
    find_row,
)
from stepscope.model.redaction import redact

STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
_BAD = ("/", ":", ".", "%", '"', "'")
_TABLES = {grammar.METRIC: "model_metrics", grammar.PARAM: "model_params", grammar.TAG: "model_tags"}
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
MAX_MODELS = 100
_ORDER_FIELDS = ("field_name", "dataset_name", "dataset_digest")


class LoggedModel(Struct, frozen=True):
    """A row of the table models; times are in milliseconds."""

    model_id: str
    experiment: int
    name: str
    artifact_uri: str
    created: int
    updated: int
    model_type: str
    status: str
    stage: str
    source_run: str
    project: str


def create(tracking: Tracking, call: Call) -> Reply:
    """Create a model with the status PENDING."""
    fields = call.fields
    text, name = fields.required("experiment_id"), fields.optional_text("name")
    if name is not None and (not name or any(letter in name for letter in _BAD)):
        raise refused(
            f"Invalid model name ({name!r}) provided. Model name must be a non-empty string and cannot contain the "
            f"following characters: {_BAD}"
        )
    params, tags = read_pairs(fields, "params"), read_pairs(fields, "tags")
    id = f"m-{tracking.new_id()}"
    with tracking.database.write() as db:
        experiment = find_active(db, text, call.project)
        model = LoggedModel(
            model_id=id,
            experiment=experiment.id,
            name=str(redact(name)) if name else f"model-{id[2:10]}",
            artifact_uri=f"{experiment.artifacts.rstrip('/')}/models/{id}/artifacts",
            created=call.now,
            updated=call.now,
            model_type=fields.text("model_type"),
            status=STATUSES[0],
            stage=ACTIVE,
            source_run=fields.text("source_run_id"),
            project=call.project or experiment.name,
        )
        add_row(db, "models", model)
        MODEL_PARAMS.put(db, params, id)
        MODEL_TAGS.put(db, tags, id)
        return Reply({"model": _describe(db, model)})


def find(db: sqlite3.Connection, model_id: str, project: str | None, *, deleted: bool = False) -> LoggedModel:
    """Return a model visible to the token's project."""
    model = find_row(db, LoggedModel, "models", model_id=model_id)
    if model is None or project not in (None, model.project) or (model.stage == DELETED and not deleted):
        raise refused(f"Logged model with ID '{model_id}' not found.", MISSING)
    return model


def get(db: sqlite3.Connection, call: Call) -> Body:
    """Return a model."""
    return {"model": _describe(db, find(db, call.path["model_id"], call.project))}


def finish(db: sqlite3.Connection, call: Call) -> Body:
    """Set the status of a model."""
    given = call.fields.values.get("status")
    status = STATUSES[given - 1] if type(given) is int and 1 <= given <= len(STATUSES) else given
    if not status:
        raise missing_value("status")
    if not isinstance(status, str) or status not in STATUSES:
        raise wrong_type("status", status)
    id = find(db, call.path["model_id"], call.project, deleted=True).model_id
    db.execute("UPDATE models SET status = ?, updated = ? WHERE model_id = ?", (status, call.now, id))
    return {"model": _describe(db, find(db, id, call.project, deleted=True))}


def delete(db: sqlite3.Connection, call: Call) -> None:
    """Delete a model; its files stay."""
    id = find(db, call.path["model_id"], call.project, deleted=True).model_id
    db.execute("UPDATE models SET stage = ?, updated = ? WHERE model_id = ?", (DELETED, call.now, id))


def set_pairs(table: Pairs, name: str, db: sqlite3.Connection, call: Call) -> None:
    """Set tags or params of a model."""
    pairs = read_pairs(call.fields, name)
    table.put(db, pairs, find(db, call.path["model_id"], call.project, deleted=True).model_id)


def delete_tag(db: sqlite3.Connection, call: Call) -> None:
    """Remove a tag of a model."""
    id, key = call.path["model_id"], call.path["key"]
    if not MODEL_TAGS.delete(db, key, find(db, id, call.project, deleted=True).model_id):
        raise refused(f"No tag with key {key!r} found for model with ID {id!r}.", MISSING)


def search(db: sqlite3.Connection, call: Call) -> Body:
    """Return a page of models, newest first unless ordered otherwise."""
    fields = call.fields
    most = fields.whole("max_results") or MAX_MODELS
    sql.check_count(most)
    if not fields.ids("experiment_ids"):
        raise missing_value("experiment_ids")
    page = sql.Page(most, sql.read_offset(fields.text("page_token")))
    numbers = ", ".join(str(experiment_number(each)) for each in fields.ids("experiment_ids"))
    clauses = parse_model_filter(fields.text("filter"), _COLUMNS)
    sql.check_clauses(clauses, [*fields.items("order_by"), *fields.items("datasets")])
    datasets = _datasets(fields)
    tests: list[sql.Part] = [(f"m.stage = '{ACTIVE}' AND m.experiment IN ({numbers})", [])]
    tests += [*sql.of_project("m.project", call.project), *(_condition(clause, datasets) for clause in clauses)]
    if datasets and grammar.METRIC not in [clause.kind for clause in clauses]:
        found = f"EXISTS (SELECT 1 FROM model_metrics AS t WHERE t.model = m.model_id AND {datasets.test})"
        tests.append((found, [*datasets.values]))
    source: sql.Part = (f"{columns_of(LoggedModel, 'm')} FROM models AS m", [])
    rows = page.select(db, source, tests, _order(fields))
    models = [_describe(db, LoggedModel(*row)) for row in rows[:most]]
    return page.body("models", models, is_last=len(rows) <= most)


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


def _condition(clause: grammar.Clause, datasets: _Datasets | None) -> sql.Part:
    if clause.kind == grammar.ATTRIBUTE:
        return sql.compare(f"m.{_COLUMNS[clause.key]}", clause)
    table = f"{_TABLES[clause.kind]} AS t WHERE t.model = m.model_id"
    if clause.kind != grammar.METRIC or datasets is None:
        return sql.pair_condition(table, clause.key, clause)
    test, values = sql.pair_condition(f"{table} AND {datasets.test}", clause.key, clause)
    return test, [*datasets.values, *values]


def _order(fields: Fields) -> sql.Part:
    terms: list[str] = []
    values: list[Any] = []
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


def _describe(db: sqlite3.Connection, model: LoggedModel) -> dict[str, Any]:
    """Return a model in MLflow's JSON."""
    info: dict[str, Any] = {
        "model_id": model.model_id,
        "experiment_id": str(model.experiment),
        "name": model.name,
        "creation_timestamp_ms": model.created,
        "last_updated_timestamp_ms": model.updated,
        "artifact_uri": model.artifact_uri,
        "status": model.status,
        "model_type": model.model_type,
        "source_run_id": model.source_run,
    }
    info |= {"tags": tags} if (tags := MODEL_TAGS.listed(db, model.model_id)) else {}
    data = {"params": MODEL_PARAMS.listed(db, model.model_id), "metrics": _metrics(db, model.model_id)}
    return {"info": info, "data": {name: found for name, found in data.items() if found}}


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


_KINDS = {"attributes": grammar.ATTRIBUTE, "metrics": grammar.METRIC, "params": grammar.PARAM, "tags": grammar.TAG}
_ENTITY = re.compile(r"([a-z]+)\.(.+)", re.DOTALL)
_TIMES = (
    *("creation_time", "creation_timestamp", "creation_timestamp_ms"),
    *("last_updated_timestamp", "last_updated_timestamp_ms"),
)
_NUMERIC, _TEXTUAL = ("<", "<=", ">", ">=", "=", "!="), ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN")


def parse_model_filter(text: str, attributes: Collection[str]) -> list[grammar.Clause]:
    """Parse a filter string of logged models, or refuse it with MLflow's message."""
    if not text:
        return []
    start = f"Invalid filter string: {text!r}."
    try:
        statements = grammar.split_statements(text)
    except SQLParseError as error:
        raise refused(f"{start} {error!r}") from None
    if len(statements) != 1:
        raise refused(f"{start} Expected a single SQL expression.")
    found = []
    for each in grammar.join_lists(statements[0].tokens):
        if isinstance(each, Comparison):
            found.append(_clause(each, attributes))
        elif each.value.strip().upper() != "AND":
            raise refused(
                f"{start} Expected a list of comparisons separated by 'AND' "
                "(e.g. 'metrics.loss > 0.1 AND params.lr = 0.01')."
            )
    return found


def _clause(comparison: Comparison, attributes: Collection[str]) -> grammar.Clause:
    tokens = [str(token) for token in comparison.tokens if not token.is_whitespace]
    if len(tokens) != 3:
        raise refused(f"Invalid comparison: {comparison}. Expected a comparison with 3 tokens.")
    name, comparator, value = tokens[0], tokens[1].upper(), tokens[2]
    word, key = match.groups() if (match := _ENTITY.fullmatch(name)) else ("attributes", name)
    kind, key = _KINDS.get(word), key.strip("`")
    if kind is None:
        raise refused(f"Invalid entity type: {word!r}. Expected one of {list(_KINDS)}.")
    numeric = kind == grammar.METRIC or (kind == grammar.ATTRIBUTE and key in _TIMES)
    known = _NUMERIC if numeric else _TEXTUAL
    if comparator not in known:
        raise refused(f"Invalid comparison operator for {word}.{key}: {comparator!r}. Expected one of {known}.")
    if kind == grammar.ATTRIBUTE and key not in attributes:
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{sorted(attributes)}'")
    if numeric:
        return grammar.Clause(kind, key, comparator, _number(name, value))
    if not (value.startswith("(") and value.endswith(")")):
        return grammar.Clause(kind, key, comparator, grammar.trimmed(value, '"').strip("'"))
    listed = grammar.read_list(value)
    grammar.check_list(comparator, listed)
    return grammar.Clause(kind, key, comparator, listed)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refused(f"Expected numeric value type for {name}. Found {text}") from None
