"""Experiments: create, find, rename, delete, restore, tag, search."""

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, EXISTS, INVALID_STATE, MISSING, refused
from stepscope.dialects.mlflow.receiver.names_and_limits import check_experiment_name, check_experiment_tag

ARTIFACTS = "mlflow-artifacts:"
_FIELDS = "id, name, artifacts, stage, created, updated, project"
ACTIVE, DELETED = "active", "deleted"


def create_default(db: sqlite3.Connection, now: int) -> None:
    """Create the default experiment."""
    row = (0, "Default", f"{ARTIFACTS}/0", ACTIVE, now, now, None)
    db.execute(f"INSERT OR IGNORE INTO experiments ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def create_experiment(
    db: sqlite3.Connection, name: str, location: str, tags: dict[str, str], project: str | None, now: int
) -> str:
    """Create an experiment and return its id."""
    check_experiment_name(name)
    if (place := urlsplit(location)).fragment or ";" in place.path.rpartition("/")[2]:
        raise refused("'artifact_location' URL can't include fragments or params.")
    for key, value in tags.items():
        check_experiment_tag(key, value)
    try:
        row = (name, _absolute(location), ACTIVE, now, now, project)
        made = db.execute(
            "INSERT INTO experiments (name, artifacts, stage, created, updated, project) VALUES (?, ?, ?, ?, ?, ?)", row
        )
    except sqlite3.IntegrityError:
        raise refused(f"Experiment(name={name}) already exists. Error: the name is taken", EXISTS) from None
    number = made.lastrowid
    if not location:
        db.execute("UPDATE experiments SET artifacts = ? WHERE id = ?", (f"{ARTIFACTS}/{number}", number))
    db.executemany(
        "INSERT INTO experiment_tags VALUES (?, ?, ?)", [(number, key, value) for key, value in tags.items()]
    )
    return str(number)


def _absolute(location: str) -> str:
    """Resolve a relative path in the folder in which the hub was started, as MLflow's server does."""
    found = urlsplit(location)
    path = url2pathname(found.path) if found.scheme == "file" else location
    if not location or found.scheme not in ("", "file") or found.netloc or path.startswith("/"):
        return location
    absolute = Path.cwd().joinpath(path).as_posix()
    return absolute if not found.scheme else urlunsplit(("file", "", absolute, found.query, found.fragment))


def experiment_number(text: str) -> int:
    """Parse an experiment id."""
    try:
        return int(text)
    except ValueError:
        raise refused(f"Invalid experiment ID '{text}'. Experiment ID must be a valid integer.") from None


def find_experiment(
    db: sqlite3.Connection, text: str, project: str | None, stage: str | None = None
) -> tuple[Any, ...]:
    """Return an experiment visible to the token's project, in a stage or in any."""
    number = experiment_number(text or "0")
    row = None
    if -(2**63) <= number < 2**63:
        row = db.execute(f"SELECT {_FIELDS} FROM experiments WHERE id = ?", (number,)).fetchone()
    if row is None or not is_visible(row, project) or stage not in (None, row[3]):
        raise refused(f"No Experiment with id={number} exists", MISSING)
    return tuple(row)


def is_visible(row: tuple[Any, ...], project: str | None) -> bool:
    """Return whether a project's token sees an experiment: the default one, and those created with such a token."""
    return project is None or row[0] == 0 or row[6] == project


def find_by_name(db: sqlite3.Connection, name: str, project: str | None) -> dict[str, Any]:
    """Return an experiment by its name, deleted or not."""
    row = db.execute(f"SELECT {_FIELDS} FROM experiments WHERE name = ?", (name,)).fetchone()
    if row is None or not is_visible(row, project):
        raise refused(f"Could not find experiment with name '{name}'", MISSING)
    return describe_experiment(db, row)


def describe_experiment(db: sqlite3.Connection, row: tuple[Any, ...]) -> dict[str, Any]:
    """Return an experiment in MLflow's JSON."""
    number, name, location, stage, created, updated, _ = row
    tags = db.execute("SELECT key, value FROM experiment_tags WHERE experiment = ?", (number,)).fetchall()
    found = {
        "experiment_id": str(number),
        "name": name,
        "artifact_location": location,
        "lifecycle_stage": stage,
        "last_update_time": updated,
        "creation_time": created,
        "workspace": "default",
    }
    return {**found, "tags": [{"key": key, "value": value} for key, value in tags]} if tags else found


def check_active(row: tuple[Any, ...]) -> None:
    """Raise Refused for a deleted experiment."""
    if row[3] != ACTIVE:
        raise refused(f"The experiment {row[0]} must be in the 'active' state. Current state is {row[3]}.")


def move_experiment(db: sqlite3.Connection, text: str, project: str | None, stage: str, now: int) -> None:
    """Delete or restore an experiment with its runs."""
    row = find_experiment(db, text, project, DELETED if stage == ACTIVE else ACTIVE)
    db.execute("UPDATE experiments SET stage = ?, updated = ? WHERE id = ?", (stage, now, row[0]))
    db.execute("UPDATE runs SET stage = ? WHERE experiment = ?", (stage, row[0]))


def rename_experiment(db: sqlite3.Connection, text: str, project: str | None, name: str, now: int) -> None:
    """Rename an experiment."""
    check_experiment_name(name)
    row = find_experiment(db, text, project)
    if row[3] != ACTIVE:
        raise refused("Cannot rename a non-active experiment.", INVALID_STATE)
    try:
        db.execute("UPDATE experiments SET name = ?, updated = ? WHERE id = ?", (name, now, row[0]))
    except sqlite3.IntegrityError:
        raise refused(f"Experiment(name={name}) already exists.", BAD_REQUEST) from None


def set_experiment_tag(db: sqlite3.Connection, text: str, project: str | None, key: str, value: str) -> None:
    """Set a tag of an experiment."""
    check_experiment_tag(key, value)
    row = find_experiment(db, text, project)
    check_active(row)
    db.execute("INSERT OR REPLACE INTO experiment_tags VALUES (?, ?, ?)", (row[0], key, value))


def delete_experiment_tag(db: sqlite3.Connection, text: str, project: str | None, key: str) -> None:
    """Remove a tag of an experiment."""
    row = find_experiment(db, text, project)
    check_active(row)
    if not db.execute("DELETE FROM experiment_tags WHERE experiment = ? AND key = ?", (row[0], key)).rowcount:
        raise refused(f"No tag with name: {key} in experiment with id {text}", MISSING)
