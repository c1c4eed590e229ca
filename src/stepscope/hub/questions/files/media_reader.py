"""The interface by which dialects find media in what their clients logged, and the shape of one entry."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from stepscope.hub.questions.toolbox.endpoint import seconds
from stepscope.hub.runs.run_files import RunFile
from stepscope.hub.store.read.log_rows import LogRow

MAX_TEXT = 20_000
"""Characters of a text that are returned."""
KINDS = ("image", "audio", "video", "table", "html", "chart")
LAYERS = ("boxes", "mask")
"""Kinds of what is drawn over an image."""
CHART = ("style", "x", "y", "by", "value", "title")
"""How a chart is drawn: line, points, bars, histogram or matrix, and of which columns of its table."""
Media = dict[str, Any]


class MediaReader(Protocol):
    """Finds the media of one dialect: the part `media` of a dialect."""

    events: tuple[str, ...]
    """Names of events that have media."""
    scopes: tuple[str, ...]
    """Scopes of log records that are texts."""

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """The media of a record with one of these names or scopes."""

    def in_file(self, file: RunFile) -> Media | None:
        """The medium that a stored file is; None for any other file."""


def place_of(row: LogRow) -> dict[str, Any]:
    """Where a record belongs: its step, time, rank and attempt."""
    record = row.record
    return {"step": record.step, "time": seconds(record.time), "rank": row.rank, "attempt": row.attempt}


def file_entry(
    name: str, caption: Any = None, copy: dict[str, str] | None = None, layers: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """A file of the run; `copy` is the same table in an artifact, beside the images that its cells name."""
    return {"name": name, "caption": caption if isinstance(caption, str) else None, "copy": copy, "layers": [*layers]}


def layer_entry(kind: str, group: str, name: str, labels: Any = None) -> dict[str, Any]:
    """Boxes or a mask over an image: the group, the file that has them, and the names of classes by number."""
    named = {key: value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {}
    return {"kind": kind, "group": group, "name": name, "labels": named}


def chart_entry(given: Any) -> dict[str, str] | None:
    """How a chart is drawn, from what a client wrote; None when it says nothing."""
    if not isinstance(given, dict) or not isinstance(given.get("style"), str):
        return None
    return {field: given[field] for field in CHART if isinstance(given.get(field), str)}
