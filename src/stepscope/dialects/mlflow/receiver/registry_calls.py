"""The endpoints under `registered-models/` and `model-versions/`: MLflow's model registry."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from stepscope.dialects.mlflow.receiver import model_registry as registry
from stepscope.dialects.mlflow.receiver import search_sql as sql
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
from stepscope.dialects.mlflow.receiver.tracking import Body, Call
from stepscope.dialects.mlflow.receiver.tracking_rows import MODEL_TAGS, REGISTERED_TAGS, VERSION_TAGS
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


def _description(fields: Fields) -> str:
    text = fields.text("description")
    check_length("description", registry.LONGEST_VALUE, text)
    return str(redact(text))


def _check_tags(tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        registry.check_registry_tag(key, value)


def _model(db: sqlite3.Connection, call: Call) -> registry.RegisteredModel:
    return registry.find_model(db, call.fields.required("name"), call.project)


def _version(db: sqlite3.Connection, call: Call) -> Found:
    fields = call.fields
    return registry.find_version(db, fields.required("name"), fields.required("version"), call.project)


def _described(db: sqlite3.Connection, model: registry.RegisteredModel, version: registry.ModelVersion) -> Body:
    aliases = registry.aliases_of(db, model.number)
    return {"model_version": registry.describe_version(db, model.name, version, aliases)}


def create_model(db: sqlite3.Connection, call: Call) -> Body:
    """Create a registered model."""
    name, description = call.fields.required("name"), _description(call.fields)
    registry.check_model_name(name)
    tags = read_pairs(call.fields)
    _check_tags(tags)
    made = registry.create_model(db, name, description, tags, call.project, call.now)
    return {"registered_model": registry.describe_model(db, made)}


def get_model(db: sqlite3.Connection, call: Call) -> Body:
    """Return a registered model with the latest version of each stage."""
    return {"registered_model": registry.describe_model(db, _model(db, call))}


def _change_model(db: sqlite3.Connection, call: Call, column: str, value: str) -> Body:
    model = _model(db, call)
    query = f"UPDATE registered_models SET {column} = ?, updated = ? WHERE number = ?"
    try:
        db.execute(query, (value, call.now, model.number))
    except sqlite3.IntegrityError:
        raise refused(f"Registered Model (name={value}) already exists. Error: the name is taken", EXISTS) from None
    if column == "name":
        db.execute("UPDATE model_versions SET updated = ? WHERE model = ?", (call.now, model.number))
    changed = registry.find_model(db, value if column == "name" else model.name, call.project)
    return {"registered_model": registry.describe_model(db, changed)}


def update_model(db: sqlite3.Connection, call: Call) -> Body:
    """Change the description of a registered model."""
    return _change_model(db, call, "description", _description(call.fields))


def rename_model(db: sqlite3.Connection, call: Call) -> Body:
    """Rename a registered model."""
    call.fields.required("name")
    new = call.fields.required("new_name")
    registry.check_model_name(new, "new_name")
    return _change_model(db, call, "name", new)


def delete_model(db: sqlite3.Connection, call: Call) -> None:
    """Delete a registered model with its versions; artifacts stay."""
    registry.delete_model(db, _model(db, call).number)


def search_models_call(db: sqlite3.Connection, call: Call) -> Body:
    """Return a page of registered models."""
    return _search(db, call, search_models, DEFAULT_MODELS, MAX_MODELS)


def search_versions_call(db: sqlite3.Connection, call: Call) -> Body:
    """Return a page of versions."""
    wanted = call.fields.whole("max_results")
    if wanted is not None and wanted < 1:
        raise refused(f"Invalid value for max_results. It must be a positive integer, but got {wanted}")
    return _search(db, call, search_versions, DEFAULT_VERSIONS, MAX_VERSIONS)


_Search = Callable[[sqlite3.Connection, sql.Asked, int, str | None], Body]


def _search(db: sqlite3.Connection, call: Call, search: _Search, default: int, largest: int) -> Body:
    fields = call.fields
    wanted = fields.whole("max_results")
    most = default if wanted is None else wanted
    if not 0 <= most <= largest:
        raise wrong_type("max_results", fields.text("max_results") if fields.is_query else most)
    return search(db, sql.read_search(fields), most, call.project)


def get_latest_versions(db: sqlite3.Connection, call: Call) -> Body:
    """Return the latest version of each stage, or of those that are asked for."""
    stages, model = call.fields.texts("stages"), _model(db, call)
    wanted = {registry.stage_named(each) for each in stages} or set(registry.STAGES)
    aliases = registry.aliases_of(db, model.number)
    found = [each for each in registry.latest_versions(db, model) if each.stage in wanted]
    described = [registry.describe_version(db, model.name, each, aliases) for each in found]
    return {"model_versions": described} if described else {}


def set_model_tag(db: sqlite3.Connection, call: Call) -> None:
    """Set a tag of a registered model."""
    pair = _tag(call.fields)
    REGISTERED_TAGS.put(db, pair, _model(db, call).number)


def _tag(fields: Fields) -> dict[str, str]:
    name, key, value = fields.required("name"), fields.required("key"), fields.text("value")
    registry.check_model_name(name)
    registry.check_registry_tag(key, value)
    return {key: masked(key, value)}


def delete_model_tag(db: sqlite3.Connection, call: Call) -> None:
    """Remove a tag of a registered model, if there is one."""
    name, key = call.fields.required("name"), call.fields.required("key")
    registry.check_model_name(name)
    check_name(key, "key")
    REGISTERED_TAGS.delete(db, key, _model(db, call).number)


def set_alias(db: sqlite3.Connection, call: Call) -> None:
    """Point an alias to a version."""
    for name in ("name", "alias", "version"):
        call.fields.required(name)
    alias = _alias(call.fields)
    registry.check_alias_is_free(alias)
    model, version = _version(db, call)
    db.execute("INSERT OR REPLACE INTO registered_aliases VALUES (?, ?, ?)", (model.number, alias, version.version))


def _alias(fields: Fields) -> str:
    name, alias = fields.required("name"), fields.required("alias")
    registry.check_model_name(name)
    registry.check_alias(alias)
    return alias


def delete_alias(db: sqlite3.Connection, call: Call) -> None:
    """Remove an alias, if there is one."""
    alias = _alias(call.fields)
    db.execute("DELETE FROM registered_aliases WHERE model = ? AND alias = ?", (_model(db, call).number, alias))


def get_by_alias(db: sqlite3.Connection, call: Call) -> Body:
    """Return the version that an alias points to."""
    alias, model = _alias(call.fields), _model(db, call)
    return _described(db, *registry.find_version(db, model.name, str(resolve_alias(db, model, alias)), call.project))


def create_version(db: sqlite3.Connection, call: Call) -> Body:
    """Create a version of a registered model from the artifacts of a run or of a logged model."""
    fields = call.fields
    name, uri = fields.required("name"), fields.required("source")
    given = Given(uri, fields.optional_text("run_id"), fields.optional_text("model_id"))
    link, description = str(redact(fields.text("run_link"))), _description(fields)
    tags = read_pairs(fields)
    source = _source(db, given, tags, call.project)
    registry.check_model_name(name)
    _check_tags(tags)
    model = _model(db, call)
    wanted = registry.ModelVersion(
        model=model.number,
        version=0,
        created=call.now,
        updated=call.now,
        description=description,
        stage=registry.STAGES[0],
        source=str(redact(source.uri)),
        location=str(redact(source.location)),
        run_id=source.run_id or "",
        run_link=link,
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
    try:
        known: Any = json.loads(MODEL_TAGS.read(db, model_id).get(_VERSIONS_TAG, "[]"))
    except (ValueError, RecursionError):
        known = []
    listed = [*(known if isinstance(known, list) else []), {"name": name, "version": version}]
    MODEL_TAGS.put(db, {_VERSIONS_TAG: json.dumps(listed)}, model_id)


def get_version(db: sqlite3.Connection, call: Call) -> Body:
    """Return a version."""
    return _described(db, *_version(db, call))


def get_download_uri(db: sqlite3.Connection, call: Call) -> Body:
    """Return where the files of a version are."""
    return {"artifact_uri": _version(db, call)[1].location}


def _change_version(db: sqlite3.Connection, call: Call, column: str, value: str | None) -> Body:
    _, version = _version(db, call)
    query = f"UPDATE model_versions SET {column} = ?, updated = ? WHERE model = ? AND version = ?"
    db.execute(query, (value, call.now, version.model, version.version))
    return _described(db, *_version(db, call))


def update_version(db: sqlite3.Connection, call: Call) -> Body:
    """Change the description of a version; without one it is removed."""
    given = call.fields.optional_text("description")
    return _change_version(db, call, "description", None if given is None else _description(call.fields))


def transition_stage(db: sqlite3.Connection, call: Call) -> Body:
    """Move a version to a stage; those that are in it may be archived."""
    fields = call.fields
    for name in ("name", "version"):
        fields.required(name)
    stage = registry.stage_named(fields.required("stage"))
    archives = _archives(fields, stage)
    _, version = _version(db, call)
    if archives:
        db.execute(
            "UPDATE model_versions SET stage = ?, updated = ? WHERE model = ? AND version != ? AND stage = ?",
            (registry.STAGES[-1], call.now, version.model, version.version, stage),
        )
    registry.touch(db, version.model, call.now)
    return _change_version(db, call, "stage", stage)


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


def delete_version(db: sqlite3.Connection, call: Call) -> None:
    """Delete a version; its number is not given again, and its files stay."""
    registry.delete_version(db, _version(db, call)[1], call.now)


def set_version_tag(db: sqlite3.Connection, call: Call) -> None:
    """Set a tag of a version."""
    call.fields.required("version")
    pair = _tag(call.fields)
    _, version = _version(db, call)
    VERSION_TAGS.put(db, pair, version.model, version.version)


def delete_version_tag(db: sqlite3.Connection, call: Call) -> None:
    """Remove a tag of a version, if there is one."""
    key = call.fields.required("key")
    check_name(key, "key")
    _, version = _version(db, call)
    VERSION_TAGS.delete(db, key, version.model, version.version)
