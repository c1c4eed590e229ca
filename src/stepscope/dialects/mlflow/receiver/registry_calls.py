"""The endpoints under `registered-models/` and `model-versions/`: MLflow's model registry."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from stepscope.dialects.mlflow.receiver import logged_models
from stepscope.dialects.mlflow.receiver import model_registry as registry
from stepscope.dialects.mlflow.receiver.errors import EXISTS, refused, wrong_type
from stepscope.dialects.mlflow.receiver.names_and_limits import check_length, check_name, masked, read_pairs
from stepscope.dialects.mlflow.receiver.registry_search import (
    DEFAULT_MODELS,
    DEFAULT_VERSIONS,
    MAX_MODELS,
    MAX_VERSIONS,
    search_models,
    search_versions,
)
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
from stepscope.dialects.mlflow.receiver.version_sources import (
    PROMPT_SOURCES,
    Given,
    Source,
    check_source,
    resolve_alias,
)
from stepscope.model.redaction import redact

_VERSIONS_TAG = "mlflow.modelVersions"
"""The tag of a logged model that lists the versions made of it."""
Found = tuple[registry.RegisteredModel, registry.ModelVersion]


def _name(fields: Fields, name: str = "name") -> str:
    return fields.text(name, required=True)


def _description(fields: Fields) -> str:
    text = fields.text("description")
    check_length("description", registry.LONGEST_VALUE, text)
    return str(redact(text))


def _tags(fields: Fields) -> dict[str, str]:
    tags = read_pairs(fields)
    for key, value in tags.items():
        registry.check_registry_tag(key, value)
    return tags


def create_model(tracking: Tracking, call: Call) -> Reply:
    """Create a registered model."""
    fields = call.fields
    name, description = _name(fields), _description(fields)
    registry.check_model_name(name)
    tags = _tags(fields)
    with tracking.database.write() as db:
        made = registry.create_model(db, name, description, tags, call.project, tracking.now)
        return Reply({"registered_model": registry.describe_model(db, made)})


def get_model(tracking: Tracking, call: Call) -> Reply:
    """Return a registered model with the latest version of each stage."""
    name = _name(call.fields)
    with tracking.database.read() as db:
        return Reply({"registered_model": registry.describe_model(db, registry.find_model(db, name, call.project))})


def _change_model(tracking: Tracking, call: Call, column: str, value: str) -> Reply:
    name, now = _name(call.fields), tracking.now
    with tracking.database.write() as db:
        model = registry.find_model(db, name, call.project)
        try:
            db.execute(
                f"UPDATE registered_models SET {column} = ?, updated = ? WHERE number = ?", (value, now, model.number)
            )
        except sqlite3.IntegrityError:
            raise refused(f"Registered Model (name={value}) already exists. Error: the name is taken", EXISTS) from None
        if column == "name":
            db.execute("UPDATE model_versions SET updated = ? WHERE model = ?", (now, model.number))
        changed = registry.find_model(db, value if column == "name" else name, call.project)
        return Reply({"registered_model": registry.describe_model(db, changed)})


def update_model(tracking: Tracking, call: Call) -> Reply:
    """Change the description of a registered model."""
    return _change_model(tracking, call, "description", _description(call.fields))


def rename_model(tracking: Tracking, call: Call) -> Reply:
    """Rename a registered model."""
    _name(call.fields)
    new = _name(call.fields, "new_name")
    registry.check_model_name(new, "new_name")
    return _change_model(tracking, call, "name", new)


def delete_model(tracking: Tracking, call: Call) -> Reply:
    """Delete a registered model with its versions; artifacts stay."""
    name = _name(call.fields)
    with tracking.database.write() as db:
        registry.delete_model(db, registry.find_model(db, name, call.project).number)
    return Reply({})


def search_models_call(tracking: Tracking, call: Call) -> Reply:
    """Return a page of registered models."""
    return _search(tracking, call, "registered_models", search_models, (DEFAULT_MODELS, MAX_MODELS))


def search_versions_call(tracking: Tracking, call: Call) -> Reply:
    """Return a page of versions."""
    wanted = call.fields.whole("max_results")
    if wanted is not None and wanted < 1:
        raise refused(f"Invalid value for max_results. It must be a positive integer, but got {wanted}")
    return _search(tracking, call, "model_versions", search_versions, (DEFAULT_VERSIONS, MAX_VERSIONS))


def _search(
    tracking: Tracking, call: Call, name: str, search: Callable[..., tuple[list[Any], str]], sizes: tuple[int, int]
) -> Reply:
    fields = call.fields
    wanted = fields.whole("max_results")
    most = sizes[0] if wanted is None else wanted
    if not 0 <= most <= sizes[1]:
        raise wrong_type("max_results", fields.text("max_results") if fields.is_query else most)
    with tracking.database.read() as db:
        found, token = search(
            db, fields.text("filter"), fields.texts("order_by"), most, fields.text("page_token"), call.project
        )
    body: dict[str, Any] = {name: found} if found else {}
    return Reply({**body, "next_page_token": token} if token else body)


def get_latest_versions(tracking: Tracking, call: Call) -> Reply:
    """Return the latest version of each stage, or of those that are asked for."""
    name, stages = _name(call.fields), call.fields.texts("stages")
    with tracking.database.read() as db:
        model = registry.find_model(db, name, call.project)
        wanted = {registry.stage_named(each) for each in stages} or set(registry.STAGES)
        aliases = registry.aliases_of(db, model.number)
        found = [
            registry.describe_version(db, name, each, aliases)
            for each in registry.latest_versions(db, model)
            if each.stage in wanted
        ]
    return Reply({"model_versions": found} if found else {})


def set_model_tag(tracking: Tracking, call: Call) -> Reply:
    """Set a tag of a registered model."""
    name, key, value = _tag(call.fields)
    with tracking.database.write() as db:
        model = registry.find_model(db, name, call.project)
        registry.set_pairs(db, "registered_tags", (model.number,), {key: masked(key, value)})
    return Reply({})


def _tag(fields: Fields) -> tuple[str, str, str]:
    name, key, value = _name(fields), fields.text("key", required=True), fields.text("value")
    registry.check_model_name(name)
    registry.check_registry_tag(key, value)
    return name, key, value


def delete_model_tag(tracking: Tracking, call: Call) -> Reply:
    """Remove a tag of a registered model, if there is one."""
    name, key = _name(call.fields), call.fields.text("key", required=True)
    registry.check_model_name(name)
    check_name(key, "key")
    with tracking.database.write() as db:
        model = registry.find_model(db, name, call.project)
        db.execute("DELETE FROM registered_tags WHERE model = ? AND key = ?", (model.number, key))
    return Reply({})


def set_alias(tracking: Tracking, call: Call) -> Reply:
    """Point an alias to a version."""
    fields = call.fields
    name, alias, text = _name(fields), fields.text("alias", required=True), fields.text("version", required=True)
    registry.check_model_name(name)
    registry.check_alias(alias)
    registry.check_alias_is_free(alias)
    with tracking.database.write() as db:
        model, version = registry.find_version(db, name, text, call.project)
        db.execute("INSERT OR REPLACE INTO registered_aliases VALUES (?, ?, ?)", (model.number, alias, version.version))
    return Reply({})


def delete_alias(tracking: Tracking, call: Call) -> Reply:
    """Remove an alias, if there is one."""
    name, alias = _name(call.fields), call.fields.text("alias", required=True)
    registry.check_model_name(name)
    registry.check_alias(alias)
    with tracking.database.write() as db:
        model = registry.find_model(db, name, call.project)
        db.execute("DELETE FROM registered_aliases WHERE model = ? AND alias = ?", (model.number, alias))
    return Reply({})


def get_by_alias(tracking: Tracking, call: Call) -> Reply:
    """Return the version that an alias points to."""
    name, alias = _name(call.fields), call.fields.text("alias", required=True)
    registry.check_model_name(name)
    registry.check_alias(alias)
    with tracking.database.read() as db:
        number = resolve_alias(db, registry.find_model(db, name, call.project), alias)
        return _described(db, *registry.find_version(db, name, str(number), call.project))


def _described(db: sqlite3.Connection, model: registry.RegisteredModel, version: registry.ModelVersion) -> Reply:
    aliases = registry.aliases_of(db, model.number)
    return Reply({"model_version": registry.describe_version(db, model.name, version, aliases)})


def create_version(tracking: Tracking, call: Call) -> Reply:
    """Create a version of a registered model from the artifacts of a run or of a logged model."""
    fields = call.fields
    name, uri = _name(fields), fields.text("source", required=True)
    given = Given(uri, fields.optional_text("run_id"), fields.optional_text("model_id"))
    link, description = str(redact(fields.text("run_link"))), _description(fields)
    tags, now = read_pairs(fields), tracking.now
    with tracking.database.write() as db:
        source = _source(db, given, tags, call.project)
        registry.check_model_name(name)
        for key, value in tags.items():
            registry.check_registry_tag(key, value)
        model = registry.find_model(db, name, call.project)
        wanted = registry.ModelVersion(
            *(model.number, 0, now, now, description, registry.STAGES[0]),
            *(str(redact(source.uri)), str(redact(source.location)), source.run_id or "", link),
        )
        made = registry.add_version(db, wanted, tags)
        if given.model_id:
            _note_version(db, given.model_id, name, made.version)
        return _described(db, model, made)


def _source(db: sqlite3.Connection, given: Given, tags: Mapping[str, str], project: str | None) -> Source:
    if not registry.is_prompt(tags):
        return check_source(db, given, project)
    if given.uri not in PROMPT_SOURCES:
        raise refused(f"Invalid prompt source: '{given.uri}'. Prompt sources must use an MLflow placeholder.")
    return Source(given.uri, given.uri, given.run_id)


def _note_version(db: sqlite3.Connection, model_id: str, name: str, version: int) -> None:
    """Add a version to the list in a tag of the logged model that it was made of."""
    row = db.execute("SELECT value FROM model_tags WHERE model = ? AND key = ?", (model_id, _VERSIONS_TAG)).fetchone()
    try:
        known = json.loads(row[0]) if row is not None else []
    except (ValueError, RecursionError):
        known = []
    listed = [*(known if isinstance(known, list) else []), {"name": name, "version": version}]
    logged_models.set_pairs(db, "model_tags", model_id, {_VERSIONS_TAG: json.dumps(listed)})


def _find(db: sqlite3.Connection, call: Call) -> Found:
    fields = call.fields
    return registry.find_version(db, _name(fields), fields.text("version", required=True), call.project)


def get_version(tracking: Tracking, call: Call) -> Reply:
    """Return a version."""
    with tracking.database.read() as db:
        return _described(db, *_find(db, call))


def get_download_uri(tracking: Tracking, call: Call) -> Reply:
    """Return where the files of a version are."""
    with tracking.database.read() as db:
        return Reply({"artifact_uri": _find(db, call)[1].location})


def _change_version(tracking: Tracking, call: Call, column: str, value: str | None) -> Reply:
    now = tracking.now
    with tracking.database.write() as db:
        _, version = _find(db, call)
        key = (version.model, version.version)
        if column == "stage":
            if _archives(call.fields, str(value)):
                db.execute(
                    "UPDATE model_versions SET stage = ?, updated = ? WHERE model = ? AND version != ? AND stage = ?",
                    (registry.STAGES[-1], now, *key, value),
                )
            registry.touch(db, version.model, now)
        db.execute(
            f"UPDATE model_versions SET {column} = ?, updated = ? WHERE model = ? AND version = ?", (value, now, *key)
        )
        return _described(db, *_find(db, call))


def update_version(tracking: Tracking, call: Call) -> Reply:
    """Change the description of a version; without one it is removed."""
    given = call.fields.optional_text("description")
    return _change_version(tracking, call, "description", None if given is None else _description(call.fields))


def transition_stage(tracking: Tracking, call: Call) -> Reply:
    """Move a version to a stage; those that are in it may be archived."""
    fields = call.fields
    for name in ("name", "version"):
        fields.text(name, required=True)
    stage = registry.stage_named(fields.text("stage", required=True))
    _archives(fields, stage)
    return _change_version(tracking, call, "stage", stage)


def _archives(fields: Fields, stage: str) -> bool:
    given = fields.values.get("archive_existing_versions")
    if given not in (None, True, False):
        raise wrong_type("archive_existing_versions", given)
    if given and stage not in registry.ACTIVE_STAGES:
        raise refused(
            "Model version transition cannot archive existing model versions because "
            f"'{fields.text('stage')}' is not an Active stage. Valid stages are {list(registry.ACTIVE_STAGES)}"
        )
    return bool(given)


def delete_version(tracking: Tracking, call: Call) -> Reply:
    """Delete a version; its number is not given again, and its files stay."""
    with tracking.database.write() as db:
        _, version = _find(db, call)
        registry.delete_version(db, version, tracking.now)
    return Reply({})


def set_version_tag(tracking: Tracking, call: Call) -> Reply:
    """Set a tag of a version."""
    fields = call.fields
    fields.text("version", required=True)
    _, key, value = _tag(fields)
    with tracking.database.write() as db:
        _, version = _find(db, call)
        registry.set_pairs(db, "version_tags", (version.model, version.version), {key: masked(key, value)})
    return Reply({})


def delete_version_tag(tracking: Tracking, call: Call) -> Reply:
    """Remove a tag of a version, if there is one."""
    key = call.fields.text("key", required=True)
    check_name(key, "key")
    with tracking.database.write() as db:
        _, version = _find(db, call)
        row = (version.model, version.version, key)
        db.execute("DELETE FROM version_tags WHERE model = ? AND version = ? AND key = ?", row)
    return Reply({})
