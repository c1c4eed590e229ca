"""Registered models and their versions in the tracking database: create, find, change, delete, describe."""

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from stepscope.dialects.mlflow.receiver.errors import EXISTS, MISSING, missing_value, refused
from stepscope.dialects.mlflow.receiver.names_and_limits import LONGEST_KEY, check_length, check_name, check_path
from stepscope.dialects.mlflow.receiver.tracking_rows import (
    REGISTERED_TAGS,
    VERSION_TAGS,
    add_row,
    columns_of,
    find_row,
)

STAGES = ("None", "Staging", "Production", "Archived")
ACTIVE_STAGES = STAGES[1:3]
DELETED = "Deleted_Internal"
"""The stage of a deleted version, whose number is not given again."""
PROMPT_TAG = "mlflow.prompt.is_prompt"
"""The tag of registered models that are prompts."""
LONGEST_NAME, LONGEST_ALIAS, LONGEST_VALUE = 256, 255, 100_000
_ALIAS = re.compile(r"[\w\-]*")
_VERSION_ALIAS = re.compile(r"[vV]\d+")
LATEST = "latest"


class RegisteredModel(Struct, frozen=True):
    """A row of the table registered_models; times are in milliseconds."""

    number: int
    name: str
    created: int
    updated: int
    description: str
    project: str | None


class ModelVersion(Struct, frozen=True):
    """A row of the table model_versions."""

    model: int
    version: int
    created: int
    updated: int
    description: str | None
    stage: str
    source: str
    location: str
    run_id: str | None
    run_link: str | None


def check_model_name(name: str, path: str = "name") -> None:
    """Refuse a name that is blank, is no normalized path, is too long or contains what separates names in URIs."""
    if not name.strip():
        raise missing_value(path, documented=False)
    if "/" in name or ":" in name:
        raise refused(f"Invalid model name '{name}'. Names cannot contain '/' or ':'.")
    check_path(name, "name")
    check_length("name", LONGEST_NAME, name)


def check_registry_tag(key: str, value: str) -> None:
    """Refuse an invalid tag of a registered model or of a version."""
    check_name(key, "key")
    check_length("key", LONGEST_KEY, key)
    check_length("value", LONGEST_VALUE, value)


def check_alias(alias: str) -> None:
    """Refuse an invalid alias."""
    if _ALIAS.fullmatch(alias) is None:
        raise refused(
            f"Invalid alias name: '{alias}'. Names may only contain alphanumerics, underscores (_), and dashes (-)."
        )
    check_length("Registered model alias name", LONGEST_ALIAS, alias)


def check_alias_is_free(alias: str) -> None:
    """Refuse an alias that has a meaning of its own: `latest`, and `v1`."""
    if alias.lower() == LATEST:
        raise refused("'latest' alias name (case insensitive) is reserved.")
    if _VERSION_ALIAS.fullmatch(alias):
        raise refused(f"Version alias name '{alias}' is reserved.")


def version_number(text: str) -> int:
    """Parse a version; one beyond 64 bits is -1, which there is not."""
    try:
        number = int(text)
    except ValueError:
        raise refused(f"Parameter 'version' must be an integer, got '{text}'.") from None
    return number if len(text) < 20 else -1


def stage_named(text: str) -> str:
    """Return a stage, whose name is given in any case."""
    for stage in STAGES:
        if text.lower() == stage.lower():
            return stage
    raise refused(f"Invalid Model Version stage: {text}. Value must be one of {', '.join(STAGES)}.")


def is_prompt(tags: Mapping[str, str]) -> bool:
    """Return whether tags are those of a prompt."""
    return tags.get(PROMPT_TAG, "false").lower() == "true"


def create_model(
    db: sqlite3.Connection, name: str, description: str, tags: Mapping[str, str], project: str | None, now: int
) -> RegisteredModel:
    """Create a registered model; one of the same name is refused."""
    model = RegisteredModel(0, name, now, now, description, project)
    try:
        model = structs.replace(model, number=add_row(db, "registered_models", model, "number"))
    except sqlite3.IntegrityError:
        raise _taken(db, name, tags) from None
    REGISTERED_TAGS.put(db, tags, model.number)
    return model


def _taken(db: sqlite3.Connection, name: str, tags: Mapping[str, str]) -> Exception:
    number = db.execute("SELECT number FROM registered_models WHERE name = ?", (name,)).fetchone()[0]
    old = "Prompt" if is_prompt(REGISTERED_TAGS.read(db, number)) else "Registered Model"
    new = "Prompt" if is_prompt(tags) else "Registered Model"
    if old == new:
        return refused(f"{new} (name={name}) already exists.", EXISTS)
    return refused(
        f"Tried to create a {new.lower()} with name {name!r}, but the name is already taken by a {old.lower()}. "
        "MLflow does not allow creating a model and a prompt with the same name.",
        EXISTS,
    )


def find_model(db: sqlite3.Connection, name: str, project: str | None) -> RegisteredModel:
    """Return a registered model visible to the token's project."""
    check_model_name(name)
    model = find_row(db, RegisteredModel, "registered_models", name=name)
    if model is None or project not in (None, model.project):
        raise refused(f"Registered Model with name={name} not found", MISSING)
    return model


def find_version(
    db: sqlite3.Connection, name: str, text: str, project: str | None
) -> tuple[RegisteredModel, ModelVersion]:
    """Return a version and its model; a deleted one is not found."""
    check_model_name(name)
    number = version_number(text)
    version = None
    model = find_row(db, RegisteredModel, "registered_models", name=name)
    if model is not None and project in (None, model.project):
        version = find_row(db, ModelVersion, "model_versions", model=model.number, version=number)
    if model is None or version is None or version.stage == DELETED:
        raise refused(f"Model Version (name={name}, version={number}) not found", MISSING)
    return model, version


def add_version(db: sqlite3.Connection, version: ModelVersion, tags: Mapping[str, str]) -> ModelVersion:
    """Add a version with the next number."""
    query = "SELECT coalesce(max(version), 0) + 1 FROM model_versions WHERE model = ?"
    number = int(db.execute(query, (version.model,)).fetchone()[0])
    made = structs.replace(version, version=number)
    add_row(db, "model_versions", made)
    VERSION_TAGS.put(db, tags, version.model, number)
    touch(db, version.model, version.created)
    return made


def touch(db: sqlite3.Connection, model: int, now: int) -> None:
    """Set the time of the last change of a model."""
    db.execute("UPDATE registered_models SET updated = ? WHERE number = ?", (now, model))


def delete_model(db: sqlite3.Connection, model: int) -> None:
    """Delete a model with its versions; the artifacts of the versions belong to runs and stay."""
    for table in ("version_tags", "model_versions", "registered_aliases", "registered_tags"):
        db.execute(f"DELETE FROM {table} WHERE model = ?", (model,))
    db.execute("DELETE FROM registered_models WHERE number = ?", (model,))


def delete_version(db: sqlite3.Connection, version: ModelVersion, now: int) -> None:
    """Delete a version: its number stays taken, what it says of its source does not stay."""
    key = (version.model, version.version)
    db.execute("DELETE FROM registered_aliases WHERE model = ? AND version = ?", key)
    db.execute("DELETE FROM version_tags WHERE model = ? AND version = ?", key)
    db.execute(
        "UPDATE model_versions SET stage = ?, updated = ?, description = NULL, source = '', location = '', "
        "run_id = NULL, run_link = NULL WHERE model = ? AND version = ?",
        (DELETED, now, *key),
    )
    touch(db, version.model, now)


def latest_versions(db: sqlite3.Connection, model: RegisteredModel) -> list[ModelVersion]:
    """Return the latest version of each stage, the oldest first."""
    newest = "SELECT max(version) FROM model_versions WHERE model = ? AND stage != ? GROUP BY stage"
    fields = columns_of(ModelVersion)
    query = f"SELECT {fields} FROM model_versions WHERE model = ? AND version IN ({newest}) ORDER BY version"
    return [ModelVersion(*row) for row in db.execute(query, (model.number, model.number, DELETED))]


def aliases_of(db: sqlite3.Connection, model: int) -> dict[str, int]:
    """Return the aliases of a model, each with its version."""
    return dict(db.execute("SELECT alias, version FROM registered_aliases WHERE model = ? ORDER BY alias", (model,)))


def describe_model(db: sqlite3.Connection, model: RegisteredModel) -> dict[str, Any]:
    """Return a registered model in MLflow's JSON."""
    lists = {
        "latest_versions": [describe_version(db, model.name, each) for each in latest_versions(db, model)],
        "tags": REGISTERED_TAGS.listed(db, model.number),
        "aliases": [{"alias": alias, "version": str(of)} for alias, of in aliases_of(db, model.number).items()],
    }
    found: dict[str, Any] = {
        "name": model.name,
        "creation_timestamp": model.created,
        "last_updated_timestamp": model.updated,
    }
    found |= {"description": model.description} if model.description else {}
    return found | {name: each for name, each in lists.items() if each}


def describe_version(
    db: sqlite3.Connection, name: str, version: ModelVersion, aliases: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return a version in MLflow's JSON; lists of versions leave the aliases out, as MLflow's do."""
    found: dict[str, Any] = {
        "name": name,
        "version": str(version.version),
        "creation_timestamp": version.created,
        "last_updated_timestamp": version.updated,
        "current_stage": version.stage,
        "source": version.source,
        "status": "READY",
    }
    optional = {"description": version.description, "run_id": version.run_id, "run_link": version.run_link}
    found |= {key: text for key, text in optional.items() if text is not None}
    tags = VERSION_TAGS.listed(db, version.model, version.version)
    found |= {"tags": tags} if tags else {}
    named = [alias for alias, of in (aliases or {}).items() if of == version.version]
    return found | ({"aliases": named} if named else {})
