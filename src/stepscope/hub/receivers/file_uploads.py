"""Uploaded files: written in parts as they arrive, and visible only when complete."""

import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool

from stepscope.hub.runs.run_files import PART
from stepscope.journal.atomic_files import replacing
from stepscope.journal.run_edits import folder_bytes
from stepscope.model.errors import Retry

SPARE_BYTES = 256 * 1024**2
"""Bytes kept free on the disk."""
_PIECE = 1024 * 1024


def sync(file: BinaryIO) -> None:
    """Flush a file to disk."""
    file.flush()
    os.fsync(file.fileno())


async def keep_file(
    path: Path,
    parts: AsyncIterator[bytes],
    finish: Callable[[BinaryIO], None] = sync,
    note: Callable[[bytes], object] = len,
) -> None:
    """Write the parts of a file in an existing folder; `note` is called with the bytes, `finish` with the open file.

    Retry when the disk is full, OSError when it cannot be written.
    """
    with replacing(path, fresh=path.with_name(f"{secrets.token_hex(8)}{PART}")) as file:
        await _copy(parts, file, note)
        await run_in_threadpool(finish, file)


def remove_folder(folder: Path, last: str = "") -> int:
    """Remove a folder, the file `last` last so that an interrupted removal can be repeated; return the bytes freed.

    Files that cannot be removed stay and are not counted.
    """
    before = folder_bytes(folder)
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != last:
                os.unlink(entry.path)
        shutil.rmtree(folder, ignore_errors=True)
    return before - (folder_bytes(folder) if folder.exists() else 0)


async def _copy(parts: AsyncIterator[bytes], file: BinaryIO, note: Callable[[bytes], object]) -> None:
    waiting: list[bytes] = []
    size = 0
    async for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _PIECE:
            await run_in_threadpool(_write, file, b"".join(waiting), note)
            waiting, size = [], 0
    await run_in_threadpool(_write, file, b"".join(waiting), note)


def _write(file: BinaryIO, data: bytes, note: Callable[[bytes], object]) -> None:
    found = os.statvfs(file.fileno())
    if found.f_bavail * found.f_frsize < SPARE_BYTES + len(data):
        raise Retry("the hub's disk is full", after=60.0)
    note(data)
    file.write(data)
