"""Delete what is kept of a run for MLflow's clients: artifacts, logged models, params, tags and latest values."""

from stepscope.hub.receivers.mlflow.artifact_files import ArtifactFiles
from stepscope.hub.receivers.mlflow.tracking_database import TrackingDatabase

_OF_RUN = ("params", "tags", "latest", "datasets", "model_links")
_OF_MODEL = ("model_params", "model_tags", "model_metrics")


def delete_run(database: TrackingDatabase, files: ArtifactFiles, run_id: str) -> int:
    """Delete a run, its models and their artifacts; return the bytes of the files.

    The rows go last: after an interruption, the same call finds what is left.
    """
    with database.read() as db:
        row = db.execute("SELECT number, artifact_uri FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        models = db.execute("SELECT model_id, artifact_uri FROM models WHERE source_run = ?", (run_id,)).fetchall()
    if row is None:
        return 0
    freed = files.remove(row[1], run_id) + sum(files.remove(uri, model) for model, uri in models)
    with database.write() as db:
        for table in _OF_RUN:
            db.execute(f"DELETE FROM {table} WHERE run = ?", (row[0],))
        for table in _OF_MODEL:
            db.executemany(f"DELETE FROM {table} WHERE model = ?", [(model,) for model, _ in models])
        db.execute("DELETE FROM models WHERE source_run = ?", (run_id,))
        db.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
    return freed
