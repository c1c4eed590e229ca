"""Media in the rows that W&B clients log."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.dialects.wandb.wire import EVENT_CHARTS, EVENT_VALUES
from stepscope.extend.receiver import (
    KINDS,
    MAX_TEXT,
    LogRow,
    Media,
    RunFile,
    chart_entry,
    file_entry,
    layer_entry,
    place_of,
)
from stepscope.model.records import Event

_ARTIFACT = re.compile(r"wandb-(?:client-)?artifact://([0-9A-Za-z]+)/(.+)")


class WandbMedia:
    """Values with `_type` and a path, and texts, each under its key."""

    events = (EVENT_VALUES, EVENT_CHARTS)
    scopes = ()

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """The media of a row."""
        for key, value in row.record.attrs.items():
            if isinstance(row.record, Event) and row.record.name == EVENT_CHARTS:
                if isinstance(value, Mapping) and isinstance(table := value.get("table"), str):
                    yield {"key": key, "kind": "chart", **place_of(row), "table": table, "chart": chart_entry(value)}
                continue
            kind, files = _files(value)
            text = value[:MAX_TEXT] if isinstance(value, str) else None
            if files or text is not None:
                yield {"key": key, "kind": kind, **place_of(row), "files": files, "text": text}

    def in_file(self, file: RunFile) -> Media | None:
        """None: files are found through the rows that name them."""
        return None


def _files(value: Any) -> tuple[str, list[dict[str, Any]]]:
    """The kind and the files of a value: one file, a list of names, or a list of such values."""
    if not isinstance(value, Mapping):
        return "text", []
    kind = next((each for each in KINDS if each in str(value.get("_type", ""))), "file")
    if isinstance(path := value.get("path"), str):
        found = _ARTIFACT.match(str(value.get("artifact_path", "")))
        copy = {"artifact": found[1], "name": found[2]} if found else None
        return kind, [file_entry(path, value.get("caption"), copy, _layers(value.get("boxes"), value.get("masks")))]
    names, captions = value.get("filenames"), value.get("captions")
    if isinstance(names, list):
        texts = captions if isinstance(captions, list) and len(captions) == len(names) else [None] * len(names)
        boxes, masks = _for_each(value.get("all_boxes"), names), _for_each(value.get("all_masks"), names)
        return kind, [
            file_entry(name, text, None, _layers(*over))
            for name, text, *over in zip(names, texts, boxes, masks, strict=True)
            if isinstance(name, str)
        ]
    inner = [each for part in value.values() if isinstance(part, list) for each in part if isinstance(each, Mapping)]
    return kind, [file_entry(each["path"], each.get("caption")) for each in inner if isinstance(each.get("path"), str)]


def _for_each(given: Any, names: list[Any]) -> list[Any]:
    """What is drawn over each of several images."""
    return given if isinstance(given, list) and len(given) == len(names) else [None] * len(names)


def _layers(boxes: Any, masks: Any) -> list[dict[str, Any]]:
    """Boxes and masks over an image, by group."""
    return [
        layer_entry(kind, str(group), str(each["path"]))
        for kind, groups in (("boxes", boxes), ("mask", masks))
        for group, each in (sorted(groups.items()) if isinstance(groups, Mapping) else ())
        if isinstance(each, Mapping) and isinstance(each.get("path"), str)
    ]
