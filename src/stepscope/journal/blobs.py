"""Blobs: files named by their SHA-256, in the folder of the writer whose records name them, so that they go with it."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepscope.journal import layout

FOLDER = "blobs"
DIGEST = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".tmp"


class Blobs:
    """The blobs of a folder. Safe from any thread and process: a blob appears whole, and equal ones are one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Return where a blob is, or would be."""
        return self.folder / digest[:2] / digest

    def find(self, digest: str) -> Path | None:
        """Return the path of a blob; None when it is not here, and for what is no digest."""
        path = self.path(digest)
        return path if DIGEST.fullmatch(digest) and path.is_file() and not path.is_symlink() else None

    def put(self, data: bytes) -> tuple[str, int]:
        """Write a blob; return its digest and the bytes that the folder grew by. OSError leaves nothing behind.

        It survives the death of the process, as what is appended to a journal does.
        """
        digest = hashlib.sha256(data).hexdigest()
        if self.path(digest).exists():
            return digest, 0
        with self._fresh() as fresh:
            fresh.write_bytes(data)
            return digest, len(data) if self._name(fresh, digest) else 0

    def copy(self, parts: Iterable[bytes]) -> tuple[str, int, int]:
        """Write a blob that comes in parts; return its digest, its size and the bytes that the folder grew by."""
        digest, size = hashlib.sha256(), 0
        with self._fresh() as fresh:
            with open(fresh, "wb") as file:
                for part in parts:
                    digest.update(part)
                    file.write(part)
                    size += len(part)
            return digest.hexdigest(), size, size if self._name(fresh, digest.hexdigest()) else 0

    @contextlib.contextmanager
    def _fresh(self) -> Iterator[Path]:
        """Yield the path of a new file that is gone after the block, unless a kill leaves it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self.folder / f"{os.getpid()}-{os.urandom(8).hex()}{_SUFFIX}"
        try:
            os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            yield fresh
        finally:
            with contextlib.suppress(OSError):
                os.unlink(fresh)

    def _name(self, fresh: Path, digest: str) -> bool:
        """Give a written file its name; False when there was one already, which stays."""
        path = self.path(digest)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        try:
            os.link(fresh, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            os.replace(fresh, path)
        return True

    def all(self) -> Iterator["os.DirEntry[str]"]:
        """List every blob, and the files that a kill left while one was written."""
        waiting = [self.folder]
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif DIGEST.fullmatch(entry.name) or entry.name.endswith(_SUFFIX):
                        yield entry

    def size(self) -> int:
        """Add up the bytes of all of them."""
        size = 0
        for entry in self.all():
            with contextlib.suppress(OSError):
                size += entry.stat(follow_symlinks=False).st_size
        return size

    def remove(self, *, keep: "set[str] | frozenset[str]" = frozenset(), before: float | None = None) -> int:
        """Remove all blobs but some, or only those written before a time in seconds; return the bytes freed."""
        freed = 0
        for entry in list(self.all()):
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if entry.name not in keep and (before is None or found.st_mtime <= before):
                    os.unlink(entry.path)
                    freed += found.st_size
        return freed


def blobs_of(folder: Path) -> Blobs:
    """Return the blobs of a writer's folder."""
    return Blobs(folder / FOLDER)


def find_blob(home: Path, run: str, digest: str) -> Path | None:
    """Find a blob of any writer of a run."""
    if not layout.is_safe(run) or not DIGEST.fullmatch(digest):
        return None
    found = (blobs_of(layout.writer_folder(home, run, name)).find(digest) for name in layout.list_writers(home, run))
    return next((path for path in found if path is not None), None)


def run_blobs(home: Path, run: str) -> list[Blobs]:
    """Return the blobs of all writers of a run that have some."""
    folders = [layout.writer_folder(home, run, name) / FOLDER for name in layout.list_writers(home, run)]
    return [Blobs(folder) for folder in folders if folder.is_dir()]
