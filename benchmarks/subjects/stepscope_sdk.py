"""Stepscope itself, recording to a journal with probes off."""

from __future__ import annotations

from pathlib import Path

import stepscope
from benchmarks.subjects import SPAN_NAME, Subject


def open_run(folder: Path) -> Subject:
    """Start a run in `folder`."""
    run = stepscope.init(project="bench", name="bench", home=str(folder / "stepscope"), probes=False)

    def span() -> None:
        with run.span(SPAN_NAME, batch_size=32, tokens=4096, lr=3e-4, phase="train", cached=True):
            pass

    return Subject(log=run.log, span=span, close=run.finish)
