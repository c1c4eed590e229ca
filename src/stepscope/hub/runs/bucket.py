"""Uploaded files of runs in a bucket: an object for each, under its run and its digest; local until it is stored."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from stepscope.journal.atomic_files import replace_file
from stepscope.journal.blobs import DIGEST, Blobs
from stepscope.journal.layout import is_safe
from stepscope.model.errors import ConfigError

_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)
_STORED, _REMOVING = "stored", "removing"
"""Files in the folder of a run: it may have objects; and those up to the time in it are to be removed."""
PIECE = 1 << 20
"""Bytes of an object that are read at a time."""
HEAD = 4096
"""Bytes of the beginning of an object that are remembered, for they say what it is."""
_MAX_KNOWN = 10_000
"""When more objects than this are known, all are forgotten."""
_TIMEOUT = "10s"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """An object of the bucket; OSError when it cannot be read."""

    bucket: "Bucket"
    key: str
    size: int
    head: bytes

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` up to `end`."""
        end = min(end, self.size)
        if end <= len(self.head):
            return self.head[start:end]
        return self.bucket.read(self.key, start, end) if start < end else b""

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Read the bytes from `start` up to `end`, a piece at a time."""
        for at in range(start, end, PIECE):
            yield self.read(at, min(at + PIECE, end))


class Bucket:
    """Objects below an address such as `s3://bucket/prefix`. Safe from any thread.

    Credentials, region and endpoint are those of the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_REGION, AWS_ENDPOINT and the like. ConfigError for an address that is none, or without the library.
    """

    def __init__(self, address: str) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise ConfigError(f"--blobs {address!r} is not an address of a bucket: write s3://bucket/prefix")
        try:
            self._obstore: Any = import_module("obstore")
        except ImportError:
            raise ConfigError("--blobs needs the extra s3: pip install 'stepscope[s3]'") from None
        self.address = address
        self._prefix = found[2].strip("/") if found[2] else ""
        plain = {"allow_http": True} if os.environ.get("AWS_ENDPOINT", "").startswith("http://") else {}
        made = import_module("obstore.store").S3Store
        self._store = made(
            found[1],
            client_options={"timeout": _TIMEOUT, "connect_timeout": _TIMEOUT, **plain},
            retry_config={"max_retries": 2},
        )

    def key(self, run: str, digest: str) -> str:
        """The key of a blob of a run."""
        return "/".join(part for part in (self._prefix, run, digest) if part)

    def size(self, key: str) -> int | None:
        """The size of an object; None when there is none."""
        with self._errors():
            try:
                return int(self._obstore.head(self._store, key)["size"])
            except FileNotFoundError:
                return None

    def put(self, key: str, path: Path) -> None:
        """Store a file, unless it is there; it is read in parts."""
        if self.size(key) == path.stat().st_size:
            return
        with self._errors(), open(path, "rb") as file:
            try:
                self._obstore.put(self._store, key, file, max_concurrency=2)
            except FileNotFoundError as error:
                raise OSError(f"there is no bucket {self.address}; create it, or correct --blobs ({error})") from None

    def begin(self, key: str) -> tuple[int, bytes] | None:
        """The size of an object and its beginning, in one request; None when there is none."""
        with self._errors():
            try:
                found = self._obstore.get(self._store, key, options={"range": (0, HEAD)})
                return int(found.meta["size"]), bytes(found.bytes())
            except FileNotFoundError:
                return None
            except self._obstore.exceptions.GenericError:
                if self.size(key) == 0:  # it has no range
                    return 0, b""
                raise

    def read(self, key: str, start: int, end: int) -> bytes:
        """Read a part of an object."""
        with self._errors():
            return bytes(self._obstore.get_range(self._store, key, start=start, end=end))

    def remove(self, keys: list[str]) -> None:
        """Remove objects; one that is not there is removed already."""
        with self._errors():
            if keys:
                self._obstore.delete(self._store, keys)

    def objects(self, run: str) -> Iterator[list[tuple[str, datetime]]]:
        """List the objects of a run with their times, a thousand at a time."""
        with self._errors():
            for page in self._obstore.list(self._store, f"{self.key(run, '')}/".lstrip("/"), chunk_size=1000):
                yield [(each["path"], each["last_modified"]) for each in page]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise OSError that says what to do."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            raise OSError(f"the bucket {self.address} does not answer: {_advice(error)}") from error


def _advice(error: Exception) -> str:
    kind, text = type(error).__name__, " ".join(str(error).split())[:300]
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return f"access is denied; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY that may read and write ({text})"
    return f"check AWS_REGION, AWS_ENDPOINT and the network ({text})"


class RemoteBlobs:
    """The uploaded blobs of a hub whose home is a bucket: each stays in its folder until the bucket has it.

    `work` moves and removes them, on one thread. Nothing is removed here before the bucket has acknowledged it, so that
    an outage or a kill at any moment costs time, not files.
    """

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.bucket, self._folder = bucket, folder
        self._lock = threading.Lock()
        self._due: set[str] | None = None
        """Runs of which something is to be moved or removed; None for any."""
        self._known: dict[str, RemoteFile] = {}
        """Objects that were looked for; the content of a digest never changes."""

    def find(self, run: str, digest: str) -> RemoteFile | None:
        """Find a blob; None when it is not there. OSError when the bucket does not answer."""
        if not is_safe(run) or not DIGEST.fullmatch(digest):
            return None
        key = self.bucket.key(run, digest)
        if (known := self._known.get(key)) is not None:
            return known
        found = self.bucket.begin(key)
        if found is None:
            return None
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        return self._known.setdefault(key, RemoteFile(self.bucket, key, *found))

    def has(self, run: str, digest: str) -> bool:
        """Return whether a blob is there; False when the bucket does not answer: it is then sent and kept again."""
        try:
            return self.bucket.size(self.bucket.key(run, digest)) is not None
        except OSError:
            return False

    def expect(self, run: str) -> None:
        """Move soon what is here of a run."""
        with self._lock:
            if self._due is not None:
                self._due.add(run)

    def expect_removal(self, run: str, before: int) -> None:
        """Remove soon the objects of a run from before a time in ns, if it has any; survives a restart."""
        with self._lock:
            if (self._folder / run / _STORED).exists():
                replace_file(self._folder / run / _REMOVING, str(before).encode())
                self._due = None if self._due is None else {*self._due, run}

    def work(self) -> None:
        """Remove and move what is due; OSError when the bucket does not answer, and all is due again."""
        with self._lock:
            due, self._due = self._due, set()
        try:
            runs = self._runs() if due is None else sorted(due)
            for run in runs:
                if (self._folder / run / _REMOVING).exists():
                    self._remove(run)
            for run in runs:
                for entry in Blobs(self._folder / run).all():
                    if DIGEST.fullmatch(entry.name):
                        self._move(run, Path(entry.path))
        except BaseException:
            self._due = None
            raise

    def _runs(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._folder) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def _move(self, run: str, path: Path) -> None:
        key = self.bucket.key(run, path.name)
        (self._folder / run / _STORED).touch(mode=0o600)
        try:
            self.bucket.put(key, path)
            os.unlink(path)
        except FileNotFoundError:  # deleted meanwhile, with its run
            self.bucket.remove([key])

    def _remove(self, run: str) -> None:
        marker = self._folder / run / _REMOVING
        wanted = marker.read_bytes()
        before = datetime.fromtimestamp(int(wanted) / 1e9, UTC)
        self._known.clear()
        left = False
        for page in self.bucket.objects(run):
            self.bucket.remove([key for key, changed in page if changed <= before])
            left = left or any(changed > before for _, changed in page)
        with self._lock:
            if marker.read_bytes() == wanted:
                marker.unlink()
                if not left:
                    (self._folder / run / _STORED).unlink(missing_ok=True)
