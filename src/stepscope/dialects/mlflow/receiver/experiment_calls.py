"""The endpoints under `experiments/`."""

import sqlite3
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, EXISTS, INVALID_STATE, MISSING, refused
from stepscope.dialects.mlflow.receiver.experiments import (
    ACTIVE,
    ARTIFACTS,
    DELETED,
    Experiment,
    describe_experiment,
    find_active,
    find_experiment,
    numbers_of,
)
from stepscope.dialects.mlflow.receiver.names_and_limits import (
    check_experiment_name,
    check_experiment_tag,
    masked,
    read_pairs,
)
from stepscope.dialects.mlflow.receiver.tracking import Body, Call
from stepscope.dialects.mlflow.receiver.tracking_rows import EXPERIMENT_TAGS, add_row, find_row

MAX_EXPERIMENTS, MAX_DATASETS = 20, 1000
"""Of a search for datasets."""


def create(db: sqlite3.Connection, call: Call) -> Body:
    """Create an experiment."""
    fields = call.fields
    name, location, tags = fields.required("name"), fields.text("artifact_location"), read_pairs(fields)
    check_experiment_name(name)
    if (place := urlsplit(location)).fragment or ";" in place.path.rpartition("/")[2]:
        raise refused("'artifact_location' URL can't include fragments or params.")
    for key, value in tags.items():
        check_experiment_tag(key, value)
    made = Experiment(0, name, _absolute(location), ACTIVE, call.now, call.now, call.project)
    try:
        number = add_row(db, "experiments", made, "id")
    except sqlite3.IntegrityError:
        raise refused(f"Experiment(name={name}) already exists. Error: the name is taken", EXISTS) from None
    if not location:
        db.execute("UPDATE experiments SET artifacts = ? WHERE id = ?", (f"{ARTIFACTS}/{number}", number))
    EXPERIMENT_TAGS.put(db, tags, number)
    return {"experiment_id": str(number)}


def _absolute(location: str) -> str:
    """Resolve a relative path in the folder in which the hub was started, as MLflow's server does."""
    found = urlsplit(location)
    path = url2pathname(found.path) if found.scheme == "file" else location
    if not location or found.scheme not in ("", "file") or found.netloc or path.startswith("/"):
        return location
    absolute = Path.cwd().joinpath(path).as_posix()
    return absolute if not found.scheme else urlunsplit(("file", "", absolute, found.query, found.fragment))


def get(db: sqlite3.Connection, call: Call) -> Body:
    """Return an experiment."""
    found = find_experiment(db, call.fields.required("experiment_id"), call.project)
    return {"experiment": describe_experiment(db, found)}


def get_by_name(db: sqlite3.Connection, call: Call) -> Body:
    """Return an experiment by its name, deleted or not."""
    name = call.fields.required("experiment_name")
    found = find_row(db, Experiment, "experiments", name=name)
    if found is None or not found.is_visible(call.project):
        raise refused(f"Could not find experiment with name '{name}'", MISSING)
    return {"experiment": describe_experiment(db, found)}


def search_datasets(db: sqlite3.Connection, call: Call) -> Body:
    """Return the datasets of the runs of some experiments: each name and digest once for each context."""
    experiments = call.fields.ids("experiment_ids")
    if not experiments:
        raise refused("SearchDatasets request must specify at least one experiment_id.")
    if len(experiments) > MAX_EXPERIMENTS:
        raise refused(
            f"SearchDatasets request cannot specify more than {MAX_EXPERIMENTS} experiment_ids. "
            f"Received {len(experiments)} experiment_ids."
        )
    rows = db.execute(
        "SELECT runs.experiment, datasets.name, datasets.digest, datasets.context FROM datasets "
        f"JOIN runs ON runs.number = datasets.run WHERE runs.experiment IN {numbers_of(experiments)} "
        "AND (?1 IS NULL OR runs.project = ?1) GROUP BY 1, 2, 3, 4 ORDER BY min(datasets.rowid) LIMIT ?2",
        (call.project, MAX_DATASETS),
    )
    found = [
        {"experiment_id": str(experiment), "name": name, "digest": digest}
        | ({"context": context} if context is not None else {})
        for experiment, name, digest, context in rows
    ]
    return {"dataset_summaries": found} if found else {}


def update(db: sqlite3.Connection, call: Call) -> None:
    """Rename an experiment."""
    text, name = call.fields.required("experiment_id"), call.fields.required("new_name")
    check_experiment_name(name)
    found = find_experiment(db, text, call.project)
    if found.stage != ACTIVE:
        raise refused("Cannot rename a non-active experiment.", INVALID_STATE)
    try:
        db.execute("UPDATE experiments SET name = ?, updated = ? WHERE id = ?", (name, call.now, found.id))
    except sqlite3.IntegrityError:
        raise refused(f"Experiment(name={name}) already exists.", BAD_REQUEST) from None


def move(stage: str, db: sqlite3.Connection, call: Call) -> None:
    """Delete an experiment with its runs, which can be restored, or restore it."""
    before = ACTIVE if stage == DELETED else DELETED
    found = find_experiment(db, call.fields.required("experiment_id"), call.project, before)
    db.execute("UPDATE experiments SET stage = ?, updated = ? WHERE id = ?", (stage, call.now, found.id))
    db.execute("UPDATE runs SET stage = ? WHERE experiment = ?", (stage, found.id))


def set_tag(db: sqlite3.Connection, call: Call) -> None:
    """Set a tag of an experiment."""
    text, key, value = call.fields.required("experiment_id"), call.fields.required("key"), call.fields.text("value")
    safe = masked(key, value)
    check_experiment_tag(key, safe)
    EXPERIMENT_TAGS.put(db, {key: safe}, find_active(db, text, call.project).id)


def delete_tag(db: sqlite3.Connection, call: Call) -> None:
    """Remove a tag of an experiment."""
    text, key = call.fields.required("experiment_id"), call.fields.required("key")
    if not EXPERIMENT_TAGS.delete(db, key, find_active(db, text, call.project).id):
        raise refused(f"No tag with name: {key} in experiment with id {text}", MISSING)
