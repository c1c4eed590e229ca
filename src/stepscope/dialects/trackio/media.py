"""Media in the rows of imported Trackio databases."""

from collections.abc import Iterator, Mapping

from stepscope.extend.receiver import KINDS, MAX_TEXT, LogRow, Media, RunFile, file_entry, place_of


class TrackioMedia:
    """Values with `_type` and a file, and texts, each under its key."""

    events = ("trackio.values",)
    scopes = ()

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """The media of a row."""
        for key, value in row.record.attrs.items():
            if isinstance(value, str):
                yield {"key": key, "kind": "text", **place_of(row), "files": [], "text": value[:MAX_TEXT]}
            elif isinstance(value, Mapping) and isinstance(path := value.get("file_path"), str):
                kind = next((each for each in KINDS if each in str(value.get("_type", ""))), "file")
                files = [file_entry(path, value.get("caption"))]
                yield {"key": key, "kind": kind, **place_of(row), "files": files, "text": None}

    def in_file(self, file: RunFile) -> Media | None:
        """None: files are found through the rows that name them."""
        return None
