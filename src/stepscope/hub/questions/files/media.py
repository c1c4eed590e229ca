"""Media of a run by metric and step: images, sounds, videos, tables and texts that were logged."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.hub.questions.files import run_files
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.toolbox.params import Param
from stepscope.hub.questions.toolbox.schemas import (
    BOOLEAN,
    INTEGER,
    SECONDS,
    STEP,
    TEXT,
    list_of,
    nullable,
    object_of,
    seconds,
)
from stepscope.hub.runs.run_files import RunFile
from stepscope.hub.store import literal
from stepscope.hub.store.read.log_rows import LogRow, read_log_rows
from stepscope.model.records import EVENT, LOG, Log

MOST_RECORDS = 5000
_LONGEST_TEXT = 20_000
_WANDB, _TENSORBOARD = "wandb.values", "tensorboard"
_KINDS = ("image", "audio", "video", "table", "html")
_MLFLOW = re.compile(r"images/(.+)[%+]step[%+]\d{1,18}[%+]timestamp[%+](\d{1,15})[%+]")
_ARTIFACT = re.compile(r"wandb-(?:client-)?artifact://([0-9A-Za-z]+)/(.+)")
Media = dict[str, Any]


def media(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/media`."""
    rows = read_log_rows(
        reader.engine,
        "logs",
        f"run = {reader.number(given['run'])} AND ({_condition(given['key'])})",
        f"time DESC, rank LIMIT {MOST_RECORDS + 1}",
    )
    found = [each for row in rows[:MOST_RECORDS] for each in _logged(row)]
    found += [each for file in run_files(reader, given["run"]) if (each := _mlflow_image(file)) is not None]
    kept = [each for each in found if given["key"] in (None, each["key"])]
    kept.sort(key=lambda each: (each["key"], each["step"] is not None, each["step"] or 0, each["time"] or 0))
    return {"run": given["run"], "media": kept, "more": len(rows) > MOST_RECORDS}


def _condition(key: str | None) -> str:
    names = ", ".join(map(literal.text, (_WANDB, f"{_TENSORBOARD}.images", f"{_TENSORBOARD}.audio")))
    found = f"kind = {EVENT} AND name IN ({names})"
    if key is not None:
        quoted = literal.text(key)
        found += f" AND (has(attr_names, {quoted}) OR has(attr_values, {quoted}))"
    return f"({found}) OR (kind = {LOG} AND scope = {literal.text(_TENSORBOARD)})"


def _logged(row: LogRow) -> Iterator[Media]:
    """The media of a record, each with its key."""
    record = row.record
    place = {"step": record.step, "time": seconds(record.time), "rank": row.rank, "attempt": row.attempt}
    tag = str(record.attrs.get("tag", ""))
    if isinstance(record, Log):
        yield {"key": tag, "kind": "text", **place, "files": [], "text": str(record.body)[:_LONGEST_TEXT]}
    elif record.name == _WANDB:
        for key, value in record.attrs.items():
            kind, files = _wandb_media(value)
            text = value[:_LONGEST_TEXT] if isinstance(value, str) else None
            if files or text is not None:
                yield {"key": key, "kind": kind, **place, "files": files, "text": text}
    elif isinstance(record.attrs.get("file"), str):
        kind = "image" if record.name.endswith("images") else "audio"
        yield {"key": tag, "kind": kind, **place, "files": [_file(record.attrs["file"])], "text": None}


def _file(name: str, caption: Any = None, copy: dict[str, str] | None = None) -> dict[str, Any]:
    """A file of the run; `copy` is the same table in an artifact, beside the images that its cells name."""
    return {"name": name, "caption": caption if isinstance(caption, str) else None, "copy": copy}


def _wandb_media(value: Any) -> tuple[str, list[dict[str, Any]]]:
    """The kind and the files of a value as W&B logs it: one file, a list of names, or a list of such values."""
    if not isinstance(value, Mapping):
        return "text", []
    kind = next((each for each in _KINDS if each in str(value.get("_type", ""))), "file")
    if isinstance(path := value.get("path"), str):
        found = _ARTIFACT.match(str(value.get("artifact_path", "")))
        return kind, [_file(path, value.get("caption"), {"artifact": found[1], "name": found[2]} if found else None)]
    names, captions = value.get("filenames"), value.get("captions")
    if isinstance(names, list):
        texts = captions if isinstance(captions, list) and len(captions) == len(names) else [None] * len(names)
        return kind, [_file(name, each) for name, each in zip(names, texts, strict=True) if isinstance(name, str)]
    inner = [each for part in value.values() if isinstance(part, list) for each in part if isinstance(each, Mapping)]
    return kind, [_file(each["path"], each.get("caption")) for each in inner if isinstance(each.get("path"), str)]


def _mlflow_image(file: RunFile) -> Media | None:
    """An image of `mlflow.log_image(key=, step=)`, which has both in its name; MLflow's smaller copy is left out."""
    found = _MLFLOW.match(file.name)
    if found is None or file.step is None or "compressed" in file.name.rpartition("/")[2]:
        return None
    place = {"step": file.step, "time": int(found[2]) / 1000, "rank": 0, "attempt": 1}
    return {"key": found[1].replace("#", "/"), "kind": "image", **place, "files": [_file(file.name)], "text": None}


_MEDIA = object_of(
    key=TEXT,
    kind={"type": "string", "enum": [*_KINDS, "text", "file"]},
    step=STEP,
    time=SECONDS,
    rank=INTEGER,
    attempt=INTEGER,
    files=list_of(object_of(name=TEXT, caption=nullable(TEXT), copy=nullable(object_of(artifact=TEXT, name=TEXT)))),
    text=nullable(TEXT),
)

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/media",
        "listMedia",
        "Images, sounds, videos, tables, texts and other media that a run logged, by key and step.",
        media,
        object_of(run=TEXT, media=list_of(_MEDIA), more=BOOLEAN),
        (RUN, Param("key", "text", "only media logged under this key")),
    ),
)
