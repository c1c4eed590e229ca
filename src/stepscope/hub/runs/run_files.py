"""The stored files of runs, and responses with their content."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from starlette.responses import FileResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from stepscope.hub.runs.bucket import RemoteFile
from stepscope.journal.blobs import Blobs, find_blob
from stepscope.journal.kept_files import IMPORTED
from stepscope.journal.layout import is_safe, runs_folder

PART = ".%part"
"""How the name of a file ends that is being written."""
_DEEPEST = 64
_IMPORTED = re.compile(r"(?:images|audio)/[^/]+/(-?\d{1,19})-\d+-[0-9a-f]{8}\.")
"""Names of imported media: the step, the index among those of one event, a digest."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """A stored file of a run."""

    name: str
    """Its path in the run or in the artifact, with slashes."""
    path: Path | None
    """Where it is; None for one that `find` finds."""
    size: int
    changed: float
    artifact: str = ""
    """The name and version of the artifact that it belongs to; empty for a file of the run itself."""
    step: int | None = None
    """The step at which it was logged, where that is known."""


class RunFiles(Protocol):
    """The files of runs that one receiver or importer keeps. Safe to use from any thread."""

    def list(self, project: str, run: str) -> list[RunFile]:
        """List the files of a run."""

    def find(self, project: str, run: str, name: str, artifact: str) -> Path | None:
        """Return the path of a file; None when there is none of this name. No name leads out of the folder."""


def walk(folder: Path, decode: Callable[[str], str] = str) -> Iterator[RunFile]:
    """List the complete files below a folder; `decode` turns names on disk into those of the client."""
    waiting = [(folder, "", 0)]
    while waiting:
        place, prefix, depth = waiting.pop()
        try:
            entries = list(os.scandir(place))
        except OSError:
            continue
        for entry in entries:
            name = f"{prefix}{decode(entry.name)}"
            if entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                waiting.append((Path(entry.path), f"{name}/", depth + 1))
            elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(PART):
                found = entry.stat(follow_symlinks=False)
                yield RunFile(name, Path(entry.path), found.st_size, found.st_mtime)


def with_steps(files: Iterable[RunFile], names: re.Pattern[str]) -> list[RunFile]:
    """Return files with the step that is the group of their name's pattern, where it matches."""
    return [replace(each, step=int(found[1])) if (found := names.match(each.name)) else each for each in files]


def below(folder: Path, name: str) -> Path | None:
    """Return the path of a file below a folder; None for a name that leads out of it, also by a symbolic link."""
    parts = name.split("/")
    if "\0" in name or len(parts) > _DEEPEST or any(part in ("", ".", "..") for part in parts):
        return None
    path = folder.joinpath(*parts)
    try:
        inside = path.parent.resolve(strict=True).is_relative_to(folder.resolve(strict=True))
    except OSError:
        return None
    return path if inside else None


class ImportedFiles:
    """The files of imported runs, such as images."""

    def __init__(self, home: Path) -> None:
        self._runs = runs_folder(home)

    def list(self, project: str, run: str) -> list[RunFile]:
        """List the files of a run."""
        return with_steps(walk(self._folder(run)), _IMPORTED) if is_safe(run) else []

    def find(self, project: str, run: str, name: str, artifact: str) -> Path | None:
        """Return the path of a file."""
        return below(self._folder(run), name) if is_safe(run) and not artifact else None

    def _folder(self, run: str) -> Path:
        return self._runs / run / IMPORTED


_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
_LOGGED = re.compile(r"media/([0-9a-f]{64})/([^\0]+)", re.DOTALL)


def logged_name(digest: str, name: str, *, whole: bool = False) -> str:
    """Return the name of a logged file: its digest finds it; `whole` keeps the folders of its name in an artifact."""
    return f"media/{digest}/{(name if whole else name.replace('/', '_')) or 'file'}"


def logged_digest(name: str) -> str | None:
    """Return the digest of a logged file, from its name; None for any other file."""
    return found[1] if (found := _LOGGED.fullmatch(name)) else None


def shown_name(name: str) -> str:
    """Return the name of a file without the digest that finds a logged one."""
    return f"media/{found[2]}" if (found := _LOGGED.fullmatch(name)) else name


class LoggedFiles:
    """The files that trainers logged: beside their journals, or uploaded to this hub. Records list them."""

    def __init__(self, home: Path, uploads: Path) -> None:
        self._home, self._uploads = home, uploads

    def uploaded(self, run: str) -> Blobs:
        """The blobs of a run that were uploaded; its id must be a valid folder name."""
        return Blobs(self._uploads / run)

    def list(self, project: str, run: str) -> list[RunFile]:
        """Nothing: files are found through the records that name them."""
        return []

    def find(self, project: str, run: str, name: str, artifact: str) -> Path | None:
        """Return the path of a file."""
        digest = logged_digest(name)
        if digest is None or not is_safe(run):
            return None
        return find_blob(self._home, run, digest) or self.uploaded(run).find(digest)


class StoredFileResponse(FileResponse):
    """Send a file as it is now, even if it is replaced or deleted before all of it is sent.

    The file is open from the start, so that its length and its content are of the same file. OSError when it cannot
    be opened.
    """

    def __init__(
        self, path: Path, media_type: str = "application/octet-stream", headers: Mapping[str, str] | None = None
    ) -> None:
        self._file = open(path, "rb", opener=_open)  # noqa: SIM115 - closed once it is sent
        number = self._file.fileno()
        super().__init__(f"/dev/fd/{number}", headers=headers, media_type=media_type, stat_result=os.fstat(number))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file and close it."""
        with self._file:
            await super().__call__(scope, receive, send)


class RemoteFileResponse(StreamingResponse):
    """Send an object of a bucket, or the one range that is asked for, a piece at a time."""

    def __init__(self, file: RemoteFile, wanted: str, media_type: str, headers: Mapping[str, str]) -> None:
        span = _span(wanted, file.size)
        start, end = span or (0, file.size)
        made = {**headers, "Accept-Ranges": "bytes", "Content-Length": str(end - start)}
        if span is not None:
            made["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}" if end > start else f"bytes */{file.size}"
        status = HTTPStatus.OK if span is None else HTTPStatus.PARTIAL_CONTENT
        super().__init__(
            file.pieces(start, end),
            status if end > start or not file.size else HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            made,
            media_type,
        )


def _span(wanted: str, size: int) -> tuple[int, int] | None:
    """The bytes of a Range header; None for all of them, as for several ranges, and an empty span beyond the end."""
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(size - int(found[2]), 0), size
    start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    return (start, end) if start < end else (size, size)


def _open(path: str, flags: int) -> int:
    """Open a file, and nothing that a symbolic link leads to."""
    return os.open(path, flags | os.O_NOFOLLOW)


def disposition(name: str, *, inline: bool = False) -> dict[str, str]:
    """The header with which a browser saves a file under a name, or shows it where that is safe."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_. ") else "_" for letter in name)
    return {"Content-Disposition": f'{"inline" if inline else "attachment"}; filename="{plain[-100:] or "file"}"'}
