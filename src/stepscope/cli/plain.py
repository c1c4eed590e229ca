"""What the commands print as JSON: values, and records with who wrote them."""

from stepscope.model.records import Record
from stepscope.model.writer import Writer
from stepscope.wire.plain import dumps, plain

__all__ = ["dumps", "plain", "record_line"]


def record_line(writer: Writer, record: Record) -> str:
    """Write a record with who wrote it as one line of JSON."""
    who = {"run": writer.run, "writer": writer.id, "rank": writer.rank, "attempt": writer.attempt}
    return dumps({**who, **plain(record)}, indent=None)
