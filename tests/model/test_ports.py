"""The writer: what a segment's head says, readable by versions that know more or less of it."""

import msgspec

from stepscope.model.ports import SCHEMA, Batch, Writer
from stepscope.model.records import Log

WRITER = Writer(id="w", run="r", project="p", rank=3, resource={"host.name": "h", "gpus": [0, 1]})


def test_a_writer_is_packed_by_name_and_comes_back() -> None:
    """Fields go by their names, so that a later version may add some and an earlier one passes over them."""
    packed = msgspec.msgpack.encode(WRITER)
    fields = msgspec.msgpack.decode(packed)
    assert msgspec.msgpack.decode(packed, type=Writer) == WRITER
    assert fields["schema"] == SCHEMA
    later = msgspec.msgpack.encode(fields | {"added_later": 1})
    assert msgspec.msgpack.decode(later, type=Writer) == WRITER


def test_three_names_are_enough() -> None:
    """A writer known only by its id, run and project is the first attempt of rank 0 of one, and the main one."""
    writer = msgspec.msgpack.decode(msgspec.msgpack.encode({"id": "w", "run": "r", "project": "p"}), type=Writer)
    assert (writer.attempt, writer.rank, writer.world_size, writer.main) == (1, 0, 1, True)


def test_a_batch_is_a_writer_a_number_and_records() -> None:
    """The one shape that every stage takes."""
    batch = Batch(WRITER, 7, [Log(1, None, None, None, None, 9, "x")])
    assert (batch.writer.id, batch.seq, len(batch.records)) == ("w", 7, 1)
