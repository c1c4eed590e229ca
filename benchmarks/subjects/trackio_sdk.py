"""Trackio with its local SQLite store; it has no spans of this kind."""

from __future__ import annotations

from pathlib import Path

import trackio

from benchmarks.subjects import Subject


def open_run(folder: Path) -> Subject:
    """Start a local run; TRACKIO_DIR, set by the spawner, decides where."""
    run = trackio.init(project="bench", name="bench", embed=False, auto_log_cpu=False, auto_log_gpu=False)
    return Subject(log=run.log, span=None, close=run.finish)
