"""The endpoints under `experiments/`."""

from typing import Any

from stepscope.dialects.mlflow.receiver import experiments
from stepscope.dialects.mlflow.receiver.errors import wrong_type
from stepscope.dialects.mlflow.receiver.names_and_limits import read_pairs
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.dialects.mlflow.receiver.run_search import VIEWS, search_experiments
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
from stepscope.model.redaction import redact


def create(tracking: Tracking, call: Call) -> Reply:
    """Create an experiment."""
    fields = call.fields
    name, location, tags = fields.text("name", required=True), fields.text("artifact_location"), read_pairs(fields)
    with tracking.database.write() as db:
        made = experiments.create_experiment(db, name, location, tags, call.project, tracking.now)
    return Reply({"experiment_id": made})


def get(tracking: Tracking, call: Call) -> Reply:
    """Return an experiment."""
    text = call.fields.text("experiment_id", required=True)
    with tracking.database.read() as db:
        row = experiments.find_experiment(db, text, call.project)
        return Reply({"experiment": experiments.describe_experiment(db, row)})


def get_by_name(tracking: Tracking, call: Call) -> Reply:
    """Return an experiment by its name."""
    name = call.fields.text("experiment_name", required=True)
    with tracking.database.read() as db:
        return Reply({"experiment": experiments.find_by_name(db, name, call.project)})


def search(tracking: Tracking, call: Call) -> Reply:
    """Return a page of experiments."""
    fields = call.fields
    with tracking.database.read() as db:
        found, token = search_experiments(
            db,
            fields.text("filter"),
            fields.texts("order_by"),
            read_view(fields, "view_type"),
            fields.whole("max_results") or 0,
            fields.text("page_token"),
            call.project,
        )
    body = {"experiments": found} if found else {}
    return Reply({**body, "next_page_token": token} if token else body)


def read_view(fields: Fields, name: str) -> int:
    """Return the requested lifecycle stages; active ones by default and, as with MLflow, for an unknown name."""
    given = fields.values.get(name)
    found: Any = given[0] if isinstance(given, list) and given else given
    if found is None:
        return 1
    if isinstance(found, str):
        return int(found) if found in _NUMBERS else VIEWS.get(found, 1)
    if found not in VIEWS.values():
        raise wrong_type(name, found)
    return int(found)


_NUMBERS = [str(number) for number in VIEWS.values()]


def update(tracking: Tracking, call: Call) -> Reply:
    """Rename an experiment."""
    text, name = call.fields.text("experiment_id", required=True), call.fields.text("new_name", required=True)
    with tracking.database.write() as db:
        experiments.rename_experiment(db, text, call.project, name, tracking.now)
    return Reply({})


def delete(tracking: Tracking, call: Call) -> Reply:
    """Delete an experiment with its runs; it can be restored."""
    return _move(tracking, call, experiments.DELETED)


def restore(tracking: Tracking, call: Call) -> Reply:
    """Restore an experiment with its runs."""
    return _move(tracking, call, experiments.ACTIVE)


def _move(tracking: Tracking, call: Call, stage: str) -> Reply:
    text = call.fields.text("experiment_id", required=True)
    with tracking.database.write() as db:
        experiments.move_experiment(db, text, call.project, stage, tracking.now)
    return Reply({})


def set_tag(tracking: Tracking, call: Call) -> Reply:
    """Set a tag of an experiment."""
    fields = call.fields
    text, key, value = (
        fields.text("experiment_id", required=True),
        fields.text("key", required=True),
        fields.text("value"),
    )
    with tracking.database.write() as db:
        experiments.set_experiment_tag(db, text, call.project, key, str(redact({key: value})[key]))
    return Reply({})


def delete_tag(tracking: Tracking, call: Call) -> Reply:
    """Remove a tag of an experiment."""
    text, key = call.fields.text("experiment_id", required=True), call.fields.text("key", required=True)
    with tracking.database.write() as db:
        experiments.delete_experiment_tag(db, text, call.project, key)
    return Reply({})
