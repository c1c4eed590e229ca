"""The files of MLflow runs for the page: artifacts of the run, and of the models that it logged."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stepscope.dialects.mlflow.receiver.artifact_files import ArtifactFiles
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.extend.receiver import RunFile, below, walk, with_steps

_STEP = re.compile(r"images/.+[%+]step[%+](\d{1,18})[%+]timestamp[%+]")
"""The file names of `mlflow.log_image(key=, step=)`."""


class MlflowRunFiles:
    """The files of all MLflow runs."""

    def __init__(self, files: ArtifactFiles, database: TrackingDatabase) -> None:
        self._files, self._database = files, database

    def list(self, project: str, run: str) -> list[RunFile]:
        """List the artifacts of a run, and the files of its models."""
        found: list[RunFile] = []
        for artifact, folder in self._folders(run):
            if artifact:
                found += [replace(each, artifact=artifact) for each in walk(folder)]
            else:
                found += with_steps(walk(folder), _STEP)
        return found

    def find(self, project: str, run: str, name: str, artifact: str) -> Path | None:
        """Return the path of an artifact, or of a file of a model."""
        for each, folder in self._folders(run):
            if each == artifact:
                return below(folder, name)
        return None

    def _folders(self, run: str) -> Iterator[tuple[str, Path]]:
        """Yield the folders of a run's artifacts and of its models, with their names."""
        with self._database.read() as db:
            rows = db.execute("SELECT '', '', artifact_uri FROM runs WHERE run_id = ?", (run,)).fetchall()
            rows += db.execute(
                "SELECT name, model_id, artifact_uri FROM models WHERE source_run = ?", (run,)
            ).fetchall()
        for name, model, uri in rows:
            folder = self._files.folder_of(str(uri))
            if folder is not None:
                yield f"{name} ({model})" if model else "", folder
