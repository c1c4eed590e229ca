"""TensorboardX: one `add_scalar` per metric, as its users write it; it has no spans."""

from __future__ import annotations

from pathlib import Path

from tensorboardX import SummaryWriter

from benchmarks.subjects import Subject


def open_writer(folder: Path) -> Subject:
    """Open an event file in `folder`."""
    writer = SummaryWriter(str(folder / "tensorboard"))
    add_scalar = writer.add_scalar

    def log(metrics: dict[str, float], step: int) -> None:
        for key, value in metrics.items():
            add_scalar(key, value, step)

    return Subject(log=log, span=None, close=writer.close)
