"""The yardstick: json.dumps and file.write, which anyone can write in a minute."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.subjects import SPAN_ATTRS, SPAN_NAME, Subject


def open_file(folder: Path) -> Subject:
    """Append JSON lines to a buffered file."""
    file = (folder / "log.jsonl").open("a")

    def log(metrics: dict[str, float], step: int) -> None:
        file.write(json.dumps({"step": step, "time": time.time_ns(), **metrics}) + "\n")

    def span() -> None:
        start = time.time_ns()
        file.write(json.dumps({"name": SPAN_NAME, "start": start, "end": time.time_ns(), **SPAN_ATTRS}) + "\n")

    return Subject(log=log, span=span, close=file.close)
