"""The stored files of a run: listed, shown and downloaded, tables page by page."""

import csv
import io
import json
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.hub.questions.checkpoints.artifacts import made_in, version_of
from stepscope.hub.questions.files.file_types import HEAD_BYTES, SVG, TABLE, FileType, file_type
from stepscope.hub.questions.files.file_types import TEXT as TEXT_FILE
from stepscope.hub.questions.toolbox.endpoint import LIMIT, OFFSET, RUN, Endpoint, Next, Param, Reader, StoredFile
from stepscope.hub.refusals import Refusal, Refused, bad_request, not_found
from stepscope.hub.runs.bucket import RemoteFile
from stepscope.hub.runs.run_files import RunFile, logged_digest, logged_name, shown_name
from stepscope.hub.store import literal
from stepscope.hub.store.read.log_rows import newest_log_rows
from stepscope.hub.store.read.run_row import RunRow
from stepscope.model.names import EVENT_ARTIFACT, EVENT_MEDIA
from stepscope.model.records import EVENT, Seconds
from stepscope.wire.plain import plain

MAX_TEXT = 256 * 1024
"""Bytes of a text that are shown; the whole of it can be downloaded."""
LARGEST_TABLE = 64 * 1024 * 1024
MAX_VALUES = 2_500_000
"""Values of a table, by what separates them in the file: each takes up to 230 bytes of memory while it is read."""
MAX_COLUMNS = 10_000
MAX_CELLS = 500_000
"""Cells of an answer; rows behind them are on the next page."""
MAX_LISTED = 5000
"""Logged files in the list of files, the newest; and as many copied files of artifacts."""
OF_ARTIFACT = f"name = {literal.text(EVENT_MEDIA)} AND has(attr_names, 'artifact')"
"""The condition of the records of copied files of artifacts."""
_LONGEST_CELL = 10_000
_DELIMITED = (".csv", ".tsv")


class FileJson(TypedDict):
    """A stored file of a run."""

    name: str
    artifact: str
    bytes: int
    time: Seconds
    step: int | None
    kind: Annotated[str, Meta(examples=["image", "audio", "video", "table", "text", "binary"])]


class FileList(TypedDict):
    """The stored files of a run, by name."""

    run: str
    files: list[FileJson]
    total: int
    bytes: int
    next: Next


class FileText(TypedDict):
    """The start of a text file."""

    name: str
    text: str
    bytes: int
    cut: Annotated[bool, Meta(description="Whether there is more.")]


class FileTable(TypedDict):
    """Rows of a table."""

    name: str
    columns: list[str]
    rows: list[list[Any]]
    total: int
    next: Next


_NAME = Param("name", "text", "the name of a file, as in the list", required=True)
_ARTIFACT = Param("artifact", "text", "the artifact that the file belongs to, as in the list")
_ROWS = Param("limit", "integer", "at most this many rows", default=100, low=1, high=10_000)


@Endpoint(
    "/api/runs/{run}/files",
    "listFiles",
    (RUN, Param("q", "text", "words that the name or the artifact must contain"), LIMIT, OFFSET),
)
def files(reader: Reader, given: dict[str, Any]) -> FileList:
    """The stored files of a run: uploads, artifacts and imported media, by name."""
    words = (given["q"] or "").lower().split()
    row = reader.recorded(given["run"])
    listed = [*stored_files(reader, row), *logged_files(reader, row)]
    found = [each for each in listed if all(word in _searched(each) for word in words)]
    found.sort(key=lambda each: (each.artifact, shown_name(each.name), each.name))
    start, end = given["offset"], given["offset"] + given["limit"]
    return {
        "run": given["run"],
        "files": [_file_json(reader, row, each) for each in found[start:end]],
        "total": len(found),
        "bytes": sum(each.size for each in found),
        "next": end if end < len(found) else None,
    }


def stored_files(reader: Reader, row: RunRow) -> list[RunFile]:
    """List the files of a run that receivers and importers keep."""
    return [each for source in reader.files for each in source.list(row.project, row.id)]


def logged_files(reader: Reader, run: RunRow) -> list[RunFile]:
    """List the files that a run logged, each once, and the copied files of its artifacts."""
    among = f"run = {run.number} AND kind = {EVENT} AND name = {literal.text(EVENT_MEDIA)}"
    logged = newest_log_rows(reader.engine, among, f"NOT ({OF_ARTIFACT})", MAX_LISTED)
    artifacts = f"SELECT name FROM lifecycle WHERE run = {run.number} AND name = {literal.text(EVENT_ARTIFACT)} LIMIT 1"
    has_some = len(reader.engine.query(artifacts)["name"]) > 0
    copied = newest_log_rows(reader.engine, among, OF_ARTIFACT, MAX_LISTED) if has_some else []
    versions = {each.id: version_of(each) for each in made_in(reader.engine, run.project).made} if copied else {}
    found: dict[tuple[str, str], RunFile] = {}
    for row in (*logged, *copied):
        attrs = row.record.attrs
        name, size = name_of(attrs), attrs.get("size")
        if name is not None and isinstance(size, int):
            id = attrs.get("artifact")
            artifact = "" if id is None else versions.get(str(id), str(id))
            file = RunFile(name, None, size, row.record.time / 1e9, artifact, row.record.step)
            found.setdefault((artifact, name), file)
    return list(found.values())


def name_of(attrs: dict[str, Any]) -> str | None:
    """Return the name of the file that a record names; None when it names none."""
    digest, name = attrs.get("sha256"), attrs.get("name")
    if not isinstance(digest, str):
        return None
    return logged_name(digest, name if isinstance(name, str) else "", whole="artifact" in attrs)


def _searched(file: RunFile) -> str:
    return f"{file.artifact}/{file.name}".lower()


def _file_json(reader: Reader, row: RunRow, file: RunFile) -> FileJson:
    try:
        kind = _type_of(file.path or _look_for(reader, row, file.name, file.artifact))
    except OSError:  # the bucket does not answer
        kind = FileType("missing", "")
    return {
        "name": file.name,
        "artifact": file.artifact,
        "bytes": file.size,
        "time": file.changed,
        "step": file.step,
        "kind": "table" if kind == TEXT_FILE and file.name.endswith((*_DELIMITED, ".table.json")) else kind.kind,
    }


def _type_of(path: Path | RemoteFile | None) -> FileType:
    if path is None:
        return FileType("missing", "")
    try:
        return file_type(_beginning(path, HEAD_BYTES))
    except OSError:
        return FileType("missing", "")


def _beginning(path: Path | RemoteFile, size: int) -> bytes:
    """Read so many bytes of a file, or all that it has."""
    if isinstance(path, RemoteFile):
        return b"".join(path.pieces(0, min(size, path.size)))
    with open(path, "rb") as opened:
        return opened.read(min(size, _size(path) + 1))  # room for all that is asked for would be taken at once


def _size(path: Path | RemoteFile) -> int:
    return path.size if isinstance(path, RemoteFile) else path.stat().st_size


def _find(reader: Reader, given: dict[str, Any]) -> Path | RemoteFile:
    try:
        path = _look_for(reader, reader.recorded(given["run"]), given["name"], given["artifact"] or "")
    except OSError as error:
        raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), 10.0)) from error
    if path is None:
        raise not_found(f"the run has no file {given['name'][:200]!r}")
    return path


def _look_for(reader: Reader, row: RunRow, name: str, artifact: str) -> Path | RemoteFile | None:
    """Return a file of a run; None when there is none of this name. OSError when a bucket does not answer."""
    for source in reader.files:
        path = source.find(row.project, row.id, name, artifact)
        if path is not None and path.is_file() and not path.is_symlink():
            return path
    digest = logged_digest(name) if reader.blobs is not None else None
    return None if reader.blobs is None or digest is None else reader.blobs.find(row.id, digest)


@Endpoint(
    "/api/runs/{run}/files/content",
    "readFile",
    (
        *(RUN, _NAME, _ARTIFACT),
        Param("download", "boolean", "save it instead of showing it", default=False),
        Param("page", "boolean", "show HTML: no scripts run, and nothing is loaded from elsewhere", default=False),
    ),
    media_types=("application/octet-stream",),
)
def content(reader: Reader, given: dict[str, Any]) -> StoredFile:
    """A file of a run. Images, sounds and videos have the type that their content shows; all else is a download."""
    path, name = _find(reader, given), given["name"].rpartition("/")[2]
    kind = _type_of(path)
    if given["page"] and kind == TEXT_FILE:
        return StoredFile(path, "text/html; charset=utf-8", name, inline=True, framed=True)
    shown = kind.kind in ("image", "audio", "video") and not given["download"]
    return StoredFile(path, kind.media_type if shown else "application/octet-stream", name, inline=shown)


@Endpoint("/api/runs/{run}/files/text", "readTextFile", (RUN, _NAME, _ARTIFACT))
def text(reader: Reader, given: dict[str, Any]) -> FileText:
    """The start of a text file of a run."""
    path = _find(reader, given)
    if _type_of(path) not in (TEXT_FILE, TABLE, SVG):
        raise bad_request(f"{given['name'][:200]!r} is not a text file")
    data = _beginning(path, MAX_TEXT + 1)
    return {
        "name": given["name"],
        "text": data[:MAX_TEXT].decode(errors="replace"),
        "bytes": _size(path),
        "cut": len(data) > MAX_TEXT,
    }


@Endpoint("/api/runs/{run}/files/table", "readTableFile", (RUN, _NAME, _ARTIFACT, _ROWS, OFFSET))
def table(reader: Reader, given: dict[str, Any]) -> FileTable:
    """Rows of a logged table, or of a CSV or TSV file."""
    path = _find(reader, given)
    if _size(path) > LARGEST_TABLE:
        raise bad_request(f"the table is larger than {LARGEST_TABLE // 2**20} MiB; download it")
    start = given["offset"]
    try:
        data = _beginning(path, LARGEST_TABLE)
        if sum(map(data.count, (b",", b"\t", b"\n", b"[", b"{"))) > MAX_VALUES:
            raise bad_request(f"the table has more than {MAX_VALUES:,} values; download it")
        columns, rows = _read_delimited(data, given["name"]) if given["name"].endswith(_DELIMITED) else _read_json(data)
        end = start + _affordable(rows[start : start + given["limit"]], len(columns))
        shown = [[_cell(each) for each in row[: len(columns)]] for row in rows[start:end]]
    except (ValueError, RecursionError, csv.Error, OSError):
        raise bad_request(f"{given['name'][:200]!r} is not a table with columns and rows") from None
    if len(columns) > MAX_COLUMNS:
        raise bad_request(f"the table has {len(columns):,} columns, more than {MAX_COLUMNS:,}; download it")
    return {
        "name": given["name"],
        "columns": [each[:_LONGEST_CELL] for each in columns],
        "rows": shown,
        "total": len(rows),
        "next": end if end < len(rows) else None,
    }


def _affordable(rows: Sequence[Sequence[Any]], columns: int) -> int:
    """How many of some rows are in one answer: at least one, which has as many cells as there are columns at most."""
    cells = 0
    for count, row in enumerate(rows, 1):
        cells += min(len(row), columns)
        if cells >= MAX_CELLS:
            return count
    return len(rows)


def _read_json(data: bytes) -> tuple[list[str], Sequence[Sequence[Any]]]:
    """Read a table that was logged as JSON: an object with columns and data."""
    found = json.loads(data)
    columns, rows = (found.get("columns"), found.get("data")) if isinstance(found, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError
    return [str(each) for each in columns], rows


def _read_delimited(data: bytes, name: str) -> tuple[list[str], Sequence[Sequence[Any]]]:
    with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace", newline="") as opened:
        rows = list(csv.reader(opened, delimiter="\t" if name.endswith(".tsv") else ","))
    return (rows[0], rows[1:]) if rows else ([], [])


def _cell(value: Any) -> Any:
    """A cell for JSON; long texts are cut, and large lists and objects are such texts."""
    if not isinstance(value, (str, list, dict)):
        return plain(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:_LONGEST_CELL] if text is value or len(text) > _LONGEST_CELL else plain(value)
