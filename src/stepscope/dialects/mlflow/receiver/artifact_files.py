"""The artifact files behind `mlflow-artifacts:` URIs, in one folder of the hub: kept, listed, deleted with a run."""

import errno
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from stepscope.dialects.mlflow.receiver.errors import DENIED, MISSING, refused
from stepscope.dialects.mlflow.receiver.experiments import ARTIFACTS
from stepscope.dialects.mlflow.receiver.logged_models import find
from stepscope.dialects.mlflow.receiver.run_table import find_run
from stepscope.dialects.mlflow.receiver.trace_table import delete_traces
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.extend.receiver import (
    PART,
    RunFile,
    StoredFileResponse,
    below,
    disposition,
    keep_file,
    remove_folder,
    walk,
    with_steps,
)
from stepscope.model.errors import Retry

_UNFIT = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.ELOOP)
"""Errors caused by a file's name, which a retry cannot fix."""
_DEEPEST = 64
_OF_RUN = ("params", "tags", "latest", "datasets", "model_links")
_OF_MODEL = ("model_params", "model_tags", "model_metrics")
"""Tables with rows of runs, and of logged models."""


def safe_path(text: str) -> str:
    """Return a relative path that cannot escape its folder; Refused for any other, however encoded."""
    path = text
    for _ in range(8):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    parts = path.split("/")
    unfit = ".." in parts or path.startswith(("/", "\\", "file:")) or path[1:3] == ":\\" or "#" in path
    if unfit or unquote(path) != path or len(parts) > _DEEPEST or any(ord(letter) < 32 for letter in path):
        raise refused("Invalid path")
    return "/".join(part for part in parts if part not in ("", "."))


class ArtifactFiles:
    """All artifacts of a hub; a token of one project can access only that project's."""

    def __init__(self, folder: Path, database: TrackingDatabase) -> None:
        self._folder = folder
        self._database = database

    def admit(self, path: str, project: str | None) -> None:
        """Raise Refused unless a path belongs to a run or model of the token's project."""
        if project is None:
            return
        parts = path.split("/")
        with self._database.read() as db:
            if parts[1:2] == ["models"]:
                find(db, parts[2] if len(parts) > 2 else "", project, deleted=True)
            else:
                find_run(db, parts[1] if len(parts) > 1 else "", project)

    def check_unused(self, path: str, token: str) -> None:
        """Raise Refused if a file exists that another token stored."""
        if not os.path.lexists(self._place(path)):
            return
        with self._database.read() as db:
            row = db.execute("SELECT token FROM artifact_tokens WHERE path = ?", (path,)).fetchone()
        if row is None or row[0] != token:
            only = "only the token that stored it, and those with the scope admin, can replace it"
            raise refused(f"The artifact {path[:200]!r} exists: {only}.", DENIED)

    def note_token(self, path: str, token: str) -> None:
        """Note the token that stored a file."""
        with self._database.write(durable=False) as db:
            db.execute("INSERT OR REPLACE INTO artifact_tokens VALUES (?, ?)", (path, token))

    def run_folder(self, uri: str) -> str | None:
        """Return the path of a run's or model's artifacts; None when they are stored elsewhere."""
        scheme, _, rest = uri.partition(":")
        return safe_path(rest.lstrip("/")) if f"{scheme}:" == ARTIFACTS else None

    def folder_of(self, uri: str) -> Path | None:
        """Return the folder of a run's or model's artifacts; None when they are stored elsewhere."""
        path = self.run_folder(uri)
        return self._place(path) if path else None

    async def keep(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Write a file, replacing an existing one atomically."""
        target = self._place(path)
        if target == self._folder or target.name.endswith(PART):
            raise refused("Artifact path must include a filename (cannot end with '/').")
        try:
            await run_in_threadpool(target.parent.mkdir, 0o700, parents=True, exist_ok=True)
            await keep_file(target, parts)
        except OSError as error:
            if error.errno in _UNFIT:
                raise refused(f"the artifact {path[:200]!r} cannot be written: {error.strerror}") from None
            raise Retry(f"an artifact cannot be written: {error}", after=10.0) from error

    def send(self, path: str) -> Response:
        """Return a file as a download that a browser does not render."""
        target = self._place(path)
        try:
            return StoredFileResponse(target, headers=disposition(target.name))
        except IsADirectoryError:
            raise refused(f"Artifact path refers to a directory, not a file: '{path}'") from None
        except (OSError, ValueError):
            raise refused(f"No such artifact: '{path}'", MISSING) from None

    def list(self, path: str, prefix: str = "") -> list[dict[str, Any]]:
        """List a folder by name; empty when it does not exist."""
        try:
            entries = sorted(os.scandir(self._place(path)), key=lambda entry: entry.name)
        except (OSError, ValueError):
            return []
        found = []
        for entry in entries:
            name = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_dir(follow_symlinks=False):
                found.append({"path": name, "is_dir": True})
            elif not entry.name.endswith(PART):
                found.append({"path": name, "is_dir": False, "file_size": entry.stat(follow_symlinks=False).st_size})
        return found

    def delete(self, path: str) -> None:
        """Remove a file or a folder, if it exists."""
        target = self._place(path)
        if target == self._folder:
            raise refused("Invalid path")
        try:
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        except (OSError, ValueError):
            raise refused(f"the artifact {path[:200]!r} cannot be removed") from None
        self._forget(path)

    def _forget(self, path: str) -> None:
        """Forget who stored a file, or the files of a folder."""
        with self._database.write() as db:
            db.execute("DELETE FROM artifact_tokens WHERE path = ?", (path,))
            db.execute("DELETE FROM artifact_tokens WHERE path > ? AND path < ?", (f"{path}/", f"{path}0"))

    def remove(self, uri: str, name: str) -> int:
        """Remove the folder of a run or model by the URI of its artifacts; return the bytes freed."""
        parts = (self.run_folder(uri) or "").split("/")
        if parts[-2:] != [name, "artifacts"]:
            return 0
        freed = remove_folder(self._place("/".join(parts[:-1])))
        self._forget("/".join(parts[:-1]))
        return freed

    def _place(self, path: str) -> Path:
        return self._folder.joinpath(*path.split("/")) if path else self._folder


def delete_run(database: TrackingDatabase, files: ArtifactFiles, run_id: str) -> int:
    """Delete a run, its models and their artifacts, and its traces; return the bytes of the files.

    The database rows are deleted last, so that an interrupted call can be repeated.
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
        delete_traces(db, ("run_id = ?", [run_id]))
        db.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
    return freed


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
