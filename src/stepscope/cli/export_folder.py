"""All runs as Parquet files, KIND/project=P/week=2026-W46/RUN.parquet; repeated, only those of what is new."""

import datetime
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from stepscope.hub.client import RUNS, HubClient
from stepscope.journal import atomic_files
from stepscope.model.errors import ConfigError

STATE = "stepscope-export.json"
"""Which runs are in the folder, and how far."""
KINDS = {
    "metrics": ("points",),
    "histograms": ("points",),
    "exemplars": ("points",),
    "spans": ("spans",),
    "logs": ("logs", "events"),
    "alerts": ("alerts",),
    "samples": ("logs",),
}
"""The kinds of files, and the counts of a run of which one must not be 0."""
_NO_PROJECT = "__HIVE_DEFAULT_PARTITION__"
_PAGE = 1000
_LONGEST_NAME = 150
_MAGIC = b"PAR1"
_TRAILER = 8
"""The length of the footer, and the magic number again."""


class Exported(NamedTuple):
    """What was done: how many runs there are, and how much was written for those that changed."""

    runs: int
    written: int
    files: int
    bytes: int


class _Known(msgspec.Struct, frozen=True):
    """A run in the folder: its week, which it keeps, and what it had."""

    week: str
    counts: dict[str, int]
    seen: float | None


_decode = msgspec.json.Decoder(dict[str, _Known]).decode


def export_runs(client: HubClient, folder: Path, report: Callable[[int, int, str], None]) -> Exported:
    """Write the files of every run that is new or has changed.

    A file appears when it is complete. After an interruption the same call continues. Runs that were deleted from the
    store since stay in the folder.
    """
    known = _read_state(folder)
    rows = list(_all_runs(client))
    written = count = size = 0
    for index, row in enumerate(rows):
        report(index, len(rows), row["id"])
        before = known.get(row["id"])
        week = before.week if before is not None else week_of(row["started"] or 0.0)
        now = _Known(week, row["counts"], row["seen"])
        if now == before:
            continue
        sizes = [_write(client, folder, kind, row, week) for kind in KINDS]
        written, count, size = written + 1, count + sum(map(bool, sizes)), size + sum(sizes)
        known[row["id"]] = now
        atomic_files.replace_file(folder / STATE, msgspec.json.encode(known), mode=0o666)
    report(len(rows), len(rows), "")
    return Exported(len(rows), written, count, size)


def week_of(seconds: float) -> str:
    """The ISO week of a time, in UTC."""
    year, week, _ = datetime.datetime.fromtimestamp(seconds, datetime.UTC).isocalendar()
    return f"{year:04}-W{week:02}"


def _read_state(folder: Path) -> dict[str, _Known]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _decode((folder / STATE).read_bytes())
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not an export folder: choose an empty or a new folder") from None
        return {}
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{folder / STATE} cannot be read ({error}): remove it to write all files again") from error


def _all_runs(client: HubClient) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        page = client.get(RUNS, limit=_PAGE, sort="started", archived="show", cursor=cursor)
        yield from page["runs"]
        cursor = page["next"]
        if cursor is None:
            return


def _write(client: HubClient, folder: Path, kind: str, row: dict[str, Any], week: str) -> int:
    """Write the file of one kind and return its size; 0 when the run has nothing of it."""
    if not any(row["counts"].get(name) for name in KINDS[kind]):
        return 0
    project = quote(row["project"], safe="") or _NO_PROJECT
    place = folder / kind / f"project={project}" / f"week={week}"
    path = place / _file_name(row["id"])
    place.mkdir(parents=True, exist_ok=True)
    with atomic_files.replacing(path, mode=0o666) as out:
        size = client.copy(out, f"{RUNS}/{{run}}/export", run=row["id"], what=kind, format="parquet", run_column="true")
    if _is_empty(path):
        path.unlink()
        return 0
    return size


def _is_empty(path: Path) -> bool:
    """Return whether a Parquet file has no rows: it then has no data before its footer."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(size - _TRAILER)
        footer = int.from_bytes(file.read(4), "little")
    return size == len(_MAGIC) + footer + _TRAILER


def _file_name(run: str) -> str:
    """The name of a run's file; a long id is cut and made unique."""
    name = quote(run, safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(run.encode()).hexdigest()[:16]}"
    return f"{name}.parquet"
