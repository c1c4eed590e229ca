"""Media of a run by metric and step: images, sounds, videos, tables and texts that were logged."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from stepscope.hub.questions.files import name_of, stored_files
from stepscope.hub.questions.files.media_reader import KINDS, Media, MediaReader, file_entry, place_of
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.toolbox.params import (
    BOOLEAN,
    INTEGER,
    SECONDS,
    STEP,
    TEXT,
    Param,
    list_of,
    nullable,
    object_of,
)
from stepscope.hub.runs.run_files import RunFile
from stepscope.hub.store import literal
from stepscope.hub.store.read.log_rows import LogRow, read_log_rows
from stepscope.model.dialects import load, with_part
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.records import EVENT, LOG, Log

MAX_RECORDS = 5000
INDEX = "index"
"""The place of a file among those of one call, which all have the same time."""


class LoggedMedia:
    """Files by key and step."""

    events: tuple[str, ...] = (EVENT_MEDIA,)
    scopes: tuple[str, ...] = ()

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """The file of a record."""
        attrs = row.record.attrs
        kind, name = attrs.get("kind"), name_of(attrs)
        if name is not None:
            files = [file_entry(name, attrs.get("caption"))]
            kind = kind if kind in KINDS else "file"
            shown = {"key": str(attrs.get("key", "")), "kind": kind, **place_of(row), "files": files, "text": None}
            yield {**shown, INDEX: attrs.get(INDEX, 0)}

    def in_file(self, file: RunFile) -> Media | None:
        """None: files are found through the records that name them."""
        return None


def media(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/media`."""
    readers: list[MediaReader] = [LoggedMedia(), *(load(each.media)() for each in with_part("media"))]
    by_event = {name: each for each in readers for name in each.events}
    by_scope = {name: each for each in readers for name in each.scopes}
    rows = read_log_rows(
        reader.engine,
        "logs",
        f"run = {reader.number(given['run'])} AND ({_condition(given['key'], list(by_event), list(by_scope))})",
        f"time DESC, rank LIMIT {MAX_RECORDS + 1}",
    )
    found: list[Media] = []
    for row in rows[:MAX_RECORDS]:
        each = by_scope.get(row.record.scope) if isinstance(row.record, Log) else by_event.get(row.record.name)
        found += each.in_record(row) if each is not None else ()
    files = stored_files(reader, reader.recorded(given["run"]))
    found += [image for file in files for each in readers if (image := each.in_file(file)) is not None]
    kept = [each for each in found if given["key"] in (None, each["key"])]
    kept.sort(key=lambda each: (each["key"], each["step"] is not None, each["step"] or 0, each["time"] or 0))
    return {"run": given["run"], "media": joined(kept), "more": len(rows) > MAX_RECORDS}


def _condition(key: str | None, events: list[str], scopes: list[str]) -> str:
    """The condition of records with media; those of texts have their key in an attribute."""
    parts = []
    if events:
        named = f"kind = {EVENT} AND name IN {literal.texts(events)}"
        if key is not None:
            named += f" AND (has(attr_names, {literal.text(key)}) OR has(attr_values, {literal.text(key)}))"
        parts.append(f"({named})")
    if scopes:
        parts.append(f"(kind = {LOG} AND scope IN {literal.texts(scopes)})")
    return " OR ".join(parts) or "0"


def joined(media: Sequence[Media]) -> list[Media]:
    """Join the files that one call of `log` recorded under one key; the media are sorted by key and time."""
    found = []
    for _, group in groupby(media, _call):
        several = list(group)
        if all(INDEX in each for each in several):
            several.sort(key=lambda each: each[INDEX] if isinstance(each[INDEX], int) else 0)
            shown = {key: value for key, value in several[0].items() if key != INDEX}
            several = [{**shown, "files": [file for each in several for file in each["files"]]}]
        found += several
    return found


def _call(each: Media) -> tuple[Any, ...]:
    return tuple(each[field] for field in ("key", "kind", "step", "time", "rank", "attempt"))


_MEDIA = object_of(
    key=TEXT,
    kind={"type": "string", "enum": [*KINDS, "text", "file"]},
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
