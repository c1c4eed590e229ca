"""wandb's artifacts: files that are staged when they are added, and copied beside the journal when they are logged."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import stepscope
from stepscope.dialects.wandb.shim import absent
from stepscope.dialects.wandb.shim.absent import Absent, text
from stepscope.dialects.wandb.shim.media import Table
from stepscope.extend import text_of

_logged: dict[str, list["Artifact"]] = {}
"""The artifacts that this process logged, by name, the oldest first."""
MAX_LOGGED = 1000
"""Artifacts of one name that can be used again by this process."""


class Artifact:
    """A set of files. What cannot be added is counted; wandb's other artifact methods do nothing."""

    def __init__(
        self, name: Any = None, type: Any = None, description: Any = None, metadata: Any = None, **named: Any
    ) -> None:
        self.name = text(name) or "artifact"
        self.type = text(type) or "unspecified"
        self.description = description
        self.metadata: Any = {} if metadata is None else metadata
        self.aliases: list[str] = []
        self.version = "v0"
        self._files: dict[str, str] = {}
        """Paths and references, by their names in the artifact."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._run: Any = None

    def _staged(self, name: str) -> Path:
        """Return the path at which a file of this name is staged."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="stepscope-artifact-")
        parts = [part for part in name.split("/") if part not in ("", ".", "..")] or ["file"]
        path = Path(self._folder.name).joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_file(self, local_path: Any, name: Any = None, *arguments: Any, **named: Any) -> None:
        """Add a copy of a file; ValueError when it is none, as of wandb."""
        source = os.fspath(local_path)
        if not os.path.isfile(source):
            raise ValueError(f"Path is not a file: {source!r}")
        key = text(name) or os.path.basename(source)
        shutil.copyfile(source, self._staged(key))
        self._files[key] = str(self._staged(key))

    def add_dir(self, local_path: Any, name: Any = None, *arguments: Any, **named: Any) -> None:
        """Add copies of the files in a folder; ValueError when it is none, as of wandb."""
        folder = os.fspath(local_path)
        if not os.path.isdir(folder):
            raise ValueError(f"Path is not a directory: {folder!r}")
        for place, _, files in os.walk(folder):
            for each in files:
                path = os.path.join(place, each)
                inside = os.path.relpath(path, folder).replace(os.sep, "/")
                if os.path.isfile(path):
                    self.add_file(path, f"{text(name)}/{inside}" if text(name) else inside)

    def add_reference(self, uri: Any, name: Any = None, *arguments: Any, **named: Any) -> None:
        """Add a reference, whose content is not read."""
        found = text_of(uri)
        self._files[text(name) or found.rstrip("/").rpartition("/")[2]] = found

    @contextlib.contextmanager
    def new_file(self, name: str, mode: str = "x", encoding: str | None = None) -> Iterator[IO[Any]]:
        """Open a new file of the artifact."""
        path = self._staged(text_of(name))
        with open(path, mode.replace("x", "w"), encoding=encoding) as file:
            yield file
        self._files[text_of(name)] = str(path)

    def add(self, obj: Any, name: Any, *arguments: Any, **named: Any) -> None:
        """Add a table as its JSON; other objects are counted as ignored."""
        if not isinstance(obj, Table):
            absent.report(f"Artifact.add({type(obj).__name__})")
            return
        key = f"{text_of(name)}.table.json"
        content = {"columns": [text_of(each) for each in obj.columns], "data": obj.data}
        self._staged(key).write_text(json.dumps(content, default=text_of))
        self._files[key] = str(self._staged(key))

    def log(self, run: stepscope.Run, aliases: Any, collection: str | None = None) -> None:
        """Record the artifact, with copies of its files."""
        self._run = run
        self.aliases = [*dict.fromkeys([*self.aliases, *map(text_of, aliases or ())])]
        about = {"description": self.description, "metadata": self.metadata, "aliases": self.aliases}
        files = dict(self._files)
        run.artifact(
            files,
            collection or self.name,
            self.type,
            copy=True,
            **{key: value for key, value in about.items() if value},
        )
        if collection is None:
            versions = _logged.setdefault(self.name, [])
            self.version = f"v{len(versions)}"
            versions.append(self)
            del versions[:-MAX_LOGGED]

    def link(self, target_path: Any, aliases: Any = None) -> "Artifact":
        """Record the artifact under the name of another collection as well."""
        if self._run is None:
            absent.report("Artifact.link")
            return self
        self.log(self._run, aliases, text_of(target_path).rpartition("/")[2].partition(":")[0])
        return self

    def version_of(self, run: stepscope.Run) -> str | None:
        """Return the version that a run logged; None when it did not."""
        return self.version if self._run is run else None

    @property
    def has_one_file(self) -> bool:
        """Whether it has a single file."""
        return len(self._files) == 1

    def wait(self, timeout: float | None = None) -> "Artifact":
        """Do nothing."""
        return self

    def download(self, root: Any = None, *arguments: Any, **named: Any) -> str:
        """Copy the files into a folder, and return it."""
        place = Path(
            os.path.join("artifacts", f"{self.name}:{self.version}") if text(root) is None else os.fspath(root)
        )
        for name, source in self._files.items():
            if "://" not in source:
                target = place.joinpath(*(part for part in name.split("/") if part not in ("", ".", "..")))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        return str(place)

    def file(self, root: Any = None) -> str:
        """Download the only file, and return its path; ValueError when there are several, as of wandb."""
        if len(self._files) != 1:
            raise ValueError("This artifact contains more than one file, call `.download()` to get all files")
        return os.path.join(self.download(root), next(iter(self._files)))

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(name)
        absent.report(f"Artifact.{name}")
        return Absent(f"artifact.{name}")


def artifact_of(given: Any, name: Any = None, type: Any = None) -> Artifact:
    """Return the artifact, or make one from a path; a path that does not exist is a reference."""
    if isinstance(given, Artifact):
        return given
    path = text(given) or ""
    made = Artifact(text(name) or os.path.basename(path.rstrip("/")), type)
    if os.path.isdir(path):
        made.add_dir(path)
    elif os.path.isfile(path):
        made.add_file(path)
    elif "://" in path:
        made.add_reference(path)
    return made


def find_logged(given: Any, type: Any = None) -> Artifact | None:
    """Return the artifact of a name that this process logged, `model:v0` or `model:best`; None for any other."""
    name, _, version = (text(given) or "").rpartition("/")[2].partition(":")
    found = _logged.get(name, [])
    if version in ("", "latest"):
        return found[-1] if found else None
    return next((each for each in reversed(found) if version == each.version or version in each.aliases), None)
