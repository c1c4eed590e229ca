"""Media of imported event files."""

from collections.abc import Iterator

from stepscope.extend.receiver import MAX_TEXT, LogRow, Media, RunFile, file_entry, place_of
from stepscope.model.records import Log


class TensorBoardMedia:
    """Images, sounds and texts, under their tags."""

    events = ("tensorboard.images", "tensorboard.audio")
    scopes = ("tensorboard",)

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """The medium of a record."""
        record = row.record
        tag = str(record.attrs.get("tag", ""))
        if isinstance(record, Log):
            yield {"key": tag, "kind": "text", **place_of(row), "files": [], "text": str(record.body)[:MAX_TEXT]}
        elif isinstance(record.attrs.get("file"), str):
            kind = "image" if record.name.endswith("images") else "audio"
            files = [file_entry(record.attrs["file"])]
            yield {"key": tag, "kind": kind, **place_of(row), "files": files, "text": None}

    def in_file(self, file: RunFile) -> Media | None:
        """None: files are found through the records that name them."""
        return None
