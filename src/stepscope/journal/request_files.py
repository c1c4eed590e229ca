"""Requests to running programs in a home folder: HOME/requests/RUN.json, which each process of the run looks at."""

import contextlib
from pathlib import Path

import msgspec

from stepscope.journal.atomic_files import FileLock, replace_file
from stepscope.journal.layout import is_safe, requests_path
from stepscope.model.run_requests import Requests, merged

_LOCK = "lock"
MAX_BYTES = 1024 * 1024
"""A larger file was not written by us."""
_decode = msgspec.json.Decoder(Requests).decode


def read(home: Path, run: str) -> Requests:
    """Read what is asked of a run; nothing where there is no file, or a damaged one."""
    try:
        with open(requests_path(home, run), "rb") as file:
            return _decode(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return Requests()


def post(home: Path, run: str, wanted: Requests) -> None:
    """Add requests to those of a run; repeating it changes nothing. OSError when they cannot be written."""
    if not is_safe(run) or not wanted:
        return
    path = requests_path(home, run)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(path.with_name(_LOCK), wait=True):
        before = read(home, run)
        now = merged(before, wanted)
        if now != before:
            replace_file(path, msgspec.json.encode(now), fsync=True)


def remove(home: Path, run: str) -> None:
    """Remove the file of a run, if there is one."""
    if is_safe(run):
        with contextlib.suppress(OSError):
            requests_path(home, run).unlink()
