"""Images of `mlflow.log_image(key=, step=)`, which has both in the name of the file."""

import re
from collections.abc import Iterator

from stepscope.extend.receiver import LogRow, Media, RunFile, file_entry

_IMAGE = re.compile(r"images/(.+)[%+]step[%+](\d{1,18})[%+]timestamp[%+](\d{1,15})[%+]")


class MlflowImages:
    """Images by key and step; MLflow's smaller copy is left out."""

    events = ()
    scopes = ()

    def in_record(self, row: LogRow) -> Iterator[Media]:
        """Nothing: images are files alone."""
        return iter(())

    def in_file(self, file: RunFile) -> Media | None:
        """The image that a file is."""
        found = _IMAGE.match(file.name)
        if found is None or "compressed" in file.name.rpartition("/")[2]:
            return None
        place = {"step": int(found[2]), "time": int(found[3]) / 1000, "rank": 0, "attempt": 1}
        files = [file_entry(file.name)]
        return {"key": found[1].replace("#", "/"), "kind": "image", **place, "files": files, "text": None}
