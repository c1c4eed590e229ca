"""Experiments in the tracking database: find, check, describe."""

import sqlite3
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from stepscope.dialects.mlflow.receiver.errors import MISSING, refused
from stepscope.dialects.mlflow.receiver.tracking_rows import EXPERIMENT_TAGS, find_row

ARTIFACTS = "mlflow-artifacts:"
ACTIVE, DELETED = "active", "deleted"


class Experiment(Struct, frozen=True):
    """A row of the table experiments; times are in milliseconds."""

    id: int
    name: str
    artifacts: str
    stage: str
    created: int
    updated: int
    project: str | None

    def is_visible(self, project: str | None) -> bool:
        """Return whether a project's token sees it: the default one, and those created with such a token."""
        return project is None or self.id == 0 or self.project == project


def create_default(db: sqlite3.Connection, now: int) -> None:
    """Create the default experiment."""
    row = (0, "Default", f"{ARTIFACTS}/0", ACTIVE, now, now, None)
    db.execute("INSERT OR IGNORE INTO experiments VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def experiment_number(text: str) -> int:
    """Parse an experiment id."""
    try:
        return int(text)
    except ValueError:
        raise refused(f"Invalid experiment ID '{text}'. Experiment ID must be a valid integer.") from None


def numbers_of(experiments: Iterable[str]) -> str:
    """Return experiment ids as a list in SQL, without those beyond 64 bits, which no experiment has."""
    return f"({', '.join(str(number) for each in experiments if abs(number := experiment_number(each)) < 2**63)})"


def find_experiment(db: sqlite3.Connection, text: str, project: str | None, stage: str | None = None) -> Experiment:
    """Return an experiment visible to the token's project, in a stage or in any."""
    number = experiment_number(text or "0")
    found = find_row(db, Experiment, "experiments", id=number) if -(2**63) <= number < 2**63 else None
    if found is None or not found.is_visible(project) or stage not in (None, found.stage):
        raise refused(f"No Experiment with id={number} exists", MISSING)
    return found


def find_active(db: sqlite3.Connection, text: str, project: str | None) -> Experiment:
    """Return an experiment; a deleted one is refused."""
    found = find_experiment(db, text, project)
    if found.stage != ACTIVE:
        raise refused(f"The experiment {found.id} must be in the 'active' state. Current state is {found.stage}.")
    return found


def describe_experiment(db: sqlite3.Connection, experiment: Experiment) -> dict[str, Any]:
    """Return an experiment in MLflow's JSON."""
    tags = EXPERIMENT_TAGS.listed(db, experiment.id)
    found = {
        "experiment_id": str(experiment.id),
        "name": experiment.name,
        "artifact_location": experiment.artifacts,
        "lifecycle_stage": experiment.stage,
        "last_update_time": experiment.updated,
        "creation_time": experiment.created,
        "workspace": "default",
    }
    return {**found, "tags": tags} if tags else found
