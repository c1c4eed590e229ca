"""The interface by which dialects find media in what their clients logged, and the shape of one entry."""

from collections.abc import Iterator
from typing import Any, Protocol

from stepscope.hub.questions.toolbox.params import seconds
from stepscope.hub.runs.run_files import RunFile
from stepscope.hub.store.read.log_rows import LogRow

MAX_TEXT = 20_000
"""Characters of a text that are returned."""
KINDS = ("image", "audio", "video", "table", "html")
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


def file_entry(name: str, caption: Any = None, copy: dict[str, str] | None = None) -> dict[str, Any]:
    """A file of the run; `copy` is the same table in an artifact, beside the images that its cells name."""
    return {"name": name, "caption": caption if isinstance(caption, str) else None, "copy": copy}
