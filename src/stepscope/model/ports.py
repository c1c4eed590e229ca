"""The one shape every stage speaks: a batch goes in, returning means it is safe."""

from collections.abc import Callable
from typing import NamedTuple

from stepscope.model.records import Record
from stepscope.model.writer import Writer


class Batch(NamedTuple):
    """Records of one writer, numbered; a `(writer.id, seq)` seen before may be ignored."""

    writer: Writer
    seq: int
    records: list[Record]


Write = Callable[[Batch], None]
"""Take a batch. Returning means *safe*; the only refusals are `Retry` and `Reject`."""
