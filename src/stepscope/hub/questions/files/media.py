"""Media of a run by metric and step: images, sounds, videos, tables and texts that were logged."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.hub.questions.files import OF_ARTIFACT, name_of, stored_files
from stepscope.hub.questions.files.media_reader import (
    CHART,
    KINDS,
    LAYERS,
    Media,
    MediaReader,
    chart_entry,
    file_entry,
    layer_entry,
    place_of,
)
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Param, Reader, one_of
from stepscope.hub.runs.run_files import RunFile
from stepscope.hub.store import literal
from stepscope.hub.store.read.log_rows import LogRow, newest_log_rows
from stepscope.model.dialects import load, with_part
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.records import EVENT, LOG, Log, Seconds

MAX_RECORDS = 5000
INDEX = "index"
"""The place of a file among those of one call, which all have the same time."""
LAYER = "layer"
"""What is drawn over the image with the same key, time and place."""
TABLE_KEY = "table"
"""The key of the table of a chart, of which a client says how it is drawn apart from logging it."""


class LoggedMedia:
    """Files by key and step."""

    events: tuple[str, ...] = (EVENT_MEDIA,)
    scopes: tuple[str, ...] = ()

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """The file of a record."""
        attrs = row.record.attrs
        kind, name = attrs.get("kind"), name_of(attrs)
        if name is None:
            return
        shown = {"key": str(attrs.get("key", "")), "kind": kind, **place_of(row), INDEX: _index(attrs)}
        if kind in LAYERS:
            yield {**shown, LAYER: layer_entry(kind, str(attrs.get("layer", "")), name, attrs.get("labels"))}
            return
        shown["kind"] = kind if kind in KINDS else "file"
        yield {
            **shown,
            "files": [file_entry(name, attrs.get("caption"))],
            "text": None,
            "chart": chart_entry(attrs.get("chart")),
        }

    def in_file(self, file: RunFile) -> Media | None:
        """None: files are found through the records that name them."""
        return None


def _index(attrs: dict[str, Any]) -> int:
    found = attrs.get(INDEX)
    return found if isinstance(found, int) else 0


class Layer(TypedDict):
    """Boxes or a mask over an image."""

    kind: str
    group: str
    name: str
    labels: Annotated[dict[str, str], Meta(description="The names of classes by number.")]


class FileCopy(TypedDict):
    """The same table in an artifact, beside the images that its cells name."""

    artifact: str
    name: str


class MediaFile(TypedDict):
    """A file of logged media."""

    name: str
    caption: str | None
    copy: FileCopy | None
    layers: list[Layer]


class MediaJson(TypedDict):
    """What was logged under a key at a step."""

    key: str
    kind: Annotated[str, one_of((*KINDS, "text", "file"))]
    step: int | None
    time: Seconds
    rank: int
    attempt: int
    files: list[MediaFile]
    text: str | None
    chart: Annotated[dict[str, str] | None, Meta(description=f"How a chart is drawn of its table: {', '.join(CHART)}.")]


class MediaList(TypedDict):
    """What a run logged, by key and step."""

    run: str
    media: list[MediaJson]
    more: Annotated[bool, Meta(description=f"Whether there are more than the newest {MAX_RECORDS:,} records.")]


@Endpoint("/api/runs/{run}/media", "listMedia", (RUN, Param("key", "text", "only media logged under this key")))
def media(reader: Reader, given: dict[str, Any]) -> MediaList:
    """Images, sounds, videos, tables, texts and other media that a run logged, by key and step."""
    readers: list[MediaReader] = [LoggedMedia(), *(load(each.media)() for each in with_part("media"))]
    by_event = {name: each for each in readers for name in each.events}
    by_scope = {name: each for each in readers for name in each.scopes}
    rows = newest_log_rows(
        reader.engine,
        f"run = {reader.number(given['run'])} AND ({_named(list(by_event), list(by_scope))})",
        _condition(given["key"]),
        MAX_RECORDS + 1,
    )
    found: list[Media] = []
    for row in rows[:MAX_RECORDS]:
        each = by_scope.get(row.record.scope) if isinstance(row.record, Log) else by_event.get(row.record.name)
        found += each.in_record(row) if each is not None else ()
    files = stored_files(reader, reader.recorded(given["run"]))
    found += [image for file in files for each in readers if (image := each.in_file(file)) is not None]
    found = _with_charts(_with_layers(found))
    kept = [each for each in found if given["key"] in (None, each["key"])]
    kept.sort(key=lambda each: (each["key"], each["step"] is not None, each["step"] or 0, each["time"] or 0))
    answered: list[Any] = [{"chart": None, **each} for each in joined(kept)]
    return {"run": given["run"], "media": answered, "more": len(rows) > MAX_RECORDS}


def _named(events: list[str], scopes: list[str]) -> str:
    """The condition of records of these names and scopes."""
    parts = []
    if events:
        parts.append(f"(kind = {EVENT} AND name IN {literal.texts(events)})")
    if scopes:
        parts.append(f"(kind = {LOG} AND scope IN {literal.texts(scopes)})")
    return " OR ".join(parts) or "0"


def _condition(key: str | None) -> str:
    """The condition of records with media; those of texts have their key in an attribute."""
    media = f"NOT ({OF_ARTIFACT})"
    if key is not None:
        begins = f"arrayExists(each -> startsWith(each, {literal.text(key)}), attr_names)"  # with that of its table
        media += f" AND ({begins} OR has(attr_values, {literal.text(key)}))"
    return f"kind = {LOG} OR {media}"


def joined(media: Sequence[Media]) -> list[Media]:
    """Join the files that one call of `log` recorded under one key; the media are sorted by key and time."""
    found = []
    for _, group in groupby(media, _call):
        several = list(group)
        if all(INDEX in each for each in several):
            several.sort(key=lambda each: each[INDEX])
            shown = {key: value for key, value in several[0].items() if key != INDEX}
            several = [{**shown, "files": [file for each in several for file in each["files"]]}]
        found += several
    return found


def _with_layers(media: Sequence[Media]) -> list[Media]:
    """Add boxes and masks to the images that they are drawn over."""
    layers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in media:
        if LAYER in each:
            layers.setdefault(_image(each), []).append(each[LAYER])
    shown = [each for each in media if LAYER not in each]
    for each in shown if layers else ():
        if INDEX in each and each["kind"] == "image":
            each["files"][0]["layers"] += sorted(layers.get(_image(each), ()), key=lambda layer: layer["group"])
    return shown


def _image(each: Media) -> tuple[Any, ...]:
    return tuple(each[field] for field in ("key", "step", "time", "rank", "attempt", INDEX))


def _with_charts(media: Sequence[Media]) -> list[Media]:
    """Turn tables into the charts that a client draws of them, under the key of the chart."""
    drawn = {each[TABLE_KEY]: each for each in media if TABLE_KEY in each}
    shown = [each for each in media if TABLE_KEY not in each]
    for each in shown if drawn else ():
        chart = drawn.get(each["key"]) if each["kind"] == "table" else None
        if chart is not None:
            each |= {"key": chart["key"], "kind": "chart", "chart": chart["chart"]}
    return shown


def _call(each: Media) -> tuple[Any, ...]:
    return tuple(each[field] for field in ("key", "kind", "step", "time", "rank", "attempt"))
