"""wandb's artifacts: files that are staged when they are added, and copied beside the journal when they are logged."""

import contextlib
import io
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import stepscope
from stepscope.dialects.wandb.shim import absent
from stepscope.dialects.wandb.shim.absent import Absent, text
from stepscope.dialects.wandb.shim.media import Table
from stepscope.extend import text_of

_logged: dict[tuple[str, str], "Artifact"] = {}
"""The newest artifact that this process logged of each name and alias; `latest` is one. The oldest is first."""
MAX_LOGGED = 50
"""Names with aliases that can be used again by this process."""
MAX_STAGED = 32 * 1024**2
"""Bytes of an artifact that are copied when they are added; files beyond are linked, or stay where they are."""
MAX_LINKED = 1024**3
"""Bytes of a file that is linked; larger ones are not recorded, which is counted when the artifact is."""


class _Folder:
    """A temporary folder, which is removed when nothing refers to it any more, and at the end of the process."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="stepscope-artifact-")
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: str, process: int) -> None:
    """Remove a folder, unless it is that of the parent of this process."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


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
        """Counted in this process; the hub counts the versions of a name in the project."""
        self.made: Any = None
        """What the run recorded."""
        self._left = MAX_STAGED
        self._files: dict[str, str] = {}
        """Paths and references, by their names in the artifact."""
        self._folder: _Folder | None = None
        self._run: Any = None

    def _staged(self, name: str) -> Path:
        """Return the path at which a file of this name is staged."""
        if self._folder is None:
            self._folder = _Folder()
        parts = [part for part in name.split("/") if part not in ("", ".", "..")] or ["file"]
        path = Path(self._folder.path).joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_file(self, local_path: Any, name: Any = None, *arguments: Any, **named: Any) -> None:
        """Add a file, as a copy if it is small; ValueError when it is none, as of wandb."""
        source = os.fspath(local_path)
        if not os.path.isfile(source):
            raise ValueError(f"Path is not a file: {source!r}")
        key = text(name) or os.path.basename(source)
        try:
            self._files[key] = self._stage(source, key)
        except OSError:  # no room, or another disk: it is read where it is
            self._files[key] = os.path.abspath(source)

    def _stage(self, source: str, key: str) -> str:
        """Copy or link a file into the folder and return its path; the same path for one that is too large."""
        size = os.stat(source).st_size
        if size > MAX_LINKED:
            return os.path.abspath(source)
        target = self._staged(key)
        target.unlink(missing_ok=True)
        if size <= self._left:
            self._left -= size
            shutil.copyfile(source, target)
        else:
            os.link(os.path.realpath(source), target)
        return str(target)

    def add_dir(self, local_path: Any, name: Any = None, *arguments: Any, **named: Any) -> None:
        """Add the files in a folder; ValueError when it is none, as of wandb."""
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
        """Open a new file of the artifact; where none can be made, what is written is lost, which is counted."""
        try:
            path = self._staged(text_of(name))
            opened: IO[Any] = open(path, mode.replace("x", "w"), encoding=encoding)  # noqa: SIM115 - closed below
        except OSError:
            absent.report("Artifact.new_file without room")
            yield io.BytesIO() if "b" in mode else io.StringIO()
            return
        with opened as file:
            yield file
        self._files[text_of(name)] = str(path)

    def add(self, obj: Any, name: Any, *arguments: Any, **named: Any) -> None:
        """Add a table as its JSON; other objects are counted as ignored."""
        if not isinstance(obj, Table):
            absent.report(f"Artifact.add({type(obj).__name__})")
            return
        key = f"{text_of(name)}.table.json"
        content = {"columns": [text_of(each) for each in obj.columns], "data": obj.data}
        try:
            self._staged(key).write_text(json.dumps(content, default=text_of))
            self._files[key] = str(self._staged(key))
        except OSError:
            absent.report("Artifact.add without room")

    def log(self, run: stepscope.Run, aliases: Any, collection: str | None = None) -> None:
        """Record the artifact, with copies of its files."""
        self._run = run
        self.aliases = [*dict.fromkeys([*self.aliases, *map(text_of, aliases or ())])]
        about = {"description": self.description, "metadata": self.metadata, "aliases": self.aliases}
        files = dict(self._files)
        made = run.artifact(
            files,
            collection or self.name,
            self.type,
            copy=True,
            **{key: value for key, value in about.items() if value},
        )
        if made is not None:
            made.held = self._folder
        if collection is None:
            self.made = made
            self._remember()

    def _remember(self) -> None:
        """Let this process use it by its name, in place of an older one."""
        before = _logged.get((self.name, "latest"))
        self.version = "v0" if before is None else f"v{int(before.version[1:]) + 1}"
        for alias in ("latest", *self.aliases):
            _logged.pop((self.name, alias), None)
            _logged[self.name, alias] = self
        for oldest in list(_logged)[:-MAX_LOGGED]:
            del _logged[oldest]

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


def find_logged(given: Any) -> Artifact | None:
    """Return the artifact of a name that this process logged, `model` or `model:best`; None for any other.

    A version such as `model:v0` is none: the hub numbers them.
    """
    name, _, alias = (text(given) or "").rpartition("/")[2].partition(":")
    return _logged.get((name, alias or "latest"))
