"""Where batches go on which the store stumbles again and again: a folder of segments someone can look at."""

import time
from pathlib import Path

import msgspec

from stepscope.model.ports import Batch
from stepscope.wire import frames

MOST = 100


def set_aside(folder: Path, batch: Batch) -> bool:
    """Write a batch to a segment of its own; False when the folder holds too many or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if sum(1 for _ in folder.iterdir()) >= MOST:
            return False
        records = [msgspec.msgpack.encode(record) for record in batch.records]
        data = frames.pack_head(batch.writer) + frames.pack_batch(batch.seq, records)
        (folder / f"{time.time_ns()}.seg").write_bytes(data)
    except (OSError, ValueError):
        return False
    return True
