"""Uploaded files: stored in the folder of their run or artifact, within limits, listed and downloaded."""

import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool

from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRuns, file_name
from stepscope.extend.receiver import Refusal, Refused, RunFile, keep_file, walk
from stepscope.model.errors import Retry
from stepscope.model.redaction import mask_text, redact

_DEEPEST, _LONGEST = 32, 255
_MAX_TEXT = 64 * 1024 * 1024


def path_in(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder; Refused for a name that escapes it."""
    parts = name.replace("\\", "/").split("/")
    if len(parts) > _DEEPEST or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"{name[:200]!r} is not the name of a file"))
    safe = [file_name(part) for part in parts]
    if any(unquote(kept) != part for kept, part in zip(safe, parts, strict=True)):
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"a part of {name[:80]!r} is longer than {_LONGEST} bytes"))
    return folder.joinpath(*safe)


def list_files(folder: Path) -> list[RunFile]:
    """List the files of a folder recursively, by name."""
    return sorted(walk(folder, unquote), key=lambda each: each.name)


class Uploads:
    """Writes uploaded files atomically."""

    def __init__(self, runs: TrackedRuns) -> None:
        self._runs = runs

    async def keep(
        self,
        folder: Path,
        name: str,
        parts: AsyncIterator[bytes],
        mask: Callable[[bytes], bytes] | None = None,
        digest: str | None = None,
    ) -> None:
        """Write the parts of a file; Refused or Retry when that fails or the MD5 does not match."""
        path = path_in(folder, name)
        await run_in_threadpool(self._runs.make, path.parent)
        found = hashlib.md5(usedforsecurity=False)

        def finish(file: BinaryIO) -> None:
            if digest is not None and found.hexdigest() != digest:
                text = f"the MD5 of the file is {found.hexdigest()}, not {digest}"
                raise Refused(Refusal(HTTPStatus.BAD_REQUEST, text))
            _finish(file, mask)

        try:
            await keep_file(path, parts, finish, found.update)
        except OSError as error:
            raise Retry(f"an uploaded file cannot be written: {error}", after=10.0) from error


def _finish(file: BinaryIO, mask: Callable[[bytes], bytes] | None) -> None:
    """Mask secrets in a file that the client generated, and sync it."""
    file.flush()
    if mask is not None and file.tell() <= _MAX_TEXT:
        file.seek(0)
        data = file.read()
        safe = mask(data)
        if safe != data:
            file.seek(0)
            file.truncate()
            file.write(safe)
            file.flush()
    os.fsync(file.fileno())


def masking(name: str, config: str) -> Callable[[bytes], bytes] | None:
    """Return the masking function for a file that the client generates; None for all others.

    `config.yaml` is replaced by the masked configuration, since masking YAML text cannot relate a value to its key.
    """
    if name == "config.yaml":
        return lambda data: config.encode()
    if name in ("wandb-metadata.json", "wandb-summary.json"):
        return _mask_json
    return _mask_text if name in ("diff.patch", "output.log") else None


def _mask_json(data: bytes) -> bytes:
    try:
        return json.dumps(redact(json.loads(data)), indent=2).encode()
    except (ValueError, RecursionError):
        return _mask_text(data)


def _mask_text(data: bytes) -> bytes:
    return mask_text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
