"""Weights & Biases in offline mode, with console capture and system statistics off; it has no spans."""

from __future__ import annotations

from pathlib import Path

import wandb

from benchmarks.subjects import Subject


def open_run(folder: Path) -> Subject:
    """Start an offline run in `folder`."""
    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, silent=True)
    run = wandb.init(project="bench", name="bench", mode="offline", dir=str(folder), settings=settings)
    return Subject(log=run.log, span=None, close=run.finish)
