"""The contract of every sink: accepts, retries, rejects by index, closes, counts."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import pytest

from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Sink, Writer
from stepscope.model.records import Event, Metric, Record, Span

WRITERS = tuple(
    Writer(id=f"r{rank}-a1-host-{rank + 1}-abcdef", run="contract", project="sinks", rank=rank, world_size=2)
    for rank in range(2)
)


class Peer(Protocol):
    """The receiving side of a sink under test: a real server with configurable answers."""

    def busy(self, seconds: float) -> None:
        """Answer the next request with a retry delay in seconds."""

    def refuse(self) -> None:
        """Answer the next request with a permanent error."""

    def steps(self) -> list[int]:
        """The steps of the metrics that were accepted, in the order they came."""


def example_batches(count: int = 5, seq: int = 0) -> list[Batch]:
    """Batches of two writers with metrics at steps 0 to `count`, an event and a span each."""
    batches = []
    for writer in WRITERS:
        first = writer.rank * count
        records: list[Record] = [
            Metric(1_700_000_000_000_000_000 + step, step, None, "trainer", {"loss": 1.0 / (step + 1)})
            for step in range(first, first + count)
        ]
        records.append(Event(1_700_000_000_000_000_001, first, None, None, None, 9, "milestone", {"text": "half"}))
        ids = bytes([writer.rank + 1] * 16), bytes([writer.rank + 1] * 8)
        records.append(Span(1_700_000_000_000_000_002, 1000, first, None, *ids, None, "train.step"))
        batches.append(Batch(writer, seq, records))
    return batches


def size(batches: Sequence[Batch]) -> int:
    """Count records."""
    return sum(len(batch.records) for batch in batches)


class SinkContract:
    """Inherit, and make `sink` and `peer` fixtures; what a destination cannot do is opted out of by name."""

    can_be_busy = True
    can_refuse = True

    def test_takes_everything(self, sink: Sink, peer: Peer) -> None:
        """Batches of several writers arrive completely, and nothing is counted as rejected."""
        assert not sink.write(example_batches())
        assert sorted(peer.steps()) == list(range(10))

    def test_takes_nothing(self, sink: Sink, peer: Peer) -> None:
        """Writing no batches is allowed."""
        assert not sink.write([])
        assert not peer.steps()

    def test_keeps_its_time(self, sink: Sink) -> None:
        """It has a time limit for a write."""
        assert 0 < sink.timeout < 3600

    def test_busy_then_taken_once(self, sink: Sink, peer: Peer) -> None:
        """A busy destination means Retry with its own wait; offered again, each record arrives once."""
        if not self.can_be_busy:
            pytest.skip("this destination is never busy")
        peer.busy(7.0)
        with pytest.raises(Retry) as caught:
            sink.write(example_batches())
        assert caught.value.after == pytest.approx(7.0, abs=1.5)
        assert not sink.write(example_batches())
        assert sorted(peer.steps()) == list(range(10))

    def test_refusal_names_the_records(self, sink: Sink, peer: Peer) -> None:
        """A refusal means Reject with indices of what was offered, and a reason for people."""
        if not self.can_refuse:
            pytest.skip("this destination refuses nothing")
        peer.refuse()
        batches = example_batches()
        with pytest.raises(Reject) as caught:
            sink.write(batches)
        assert str(caught.value)
        assert caught.value.where
        assert set(caught.value.where) <= set(range(size(batches)))

    def test_goes_on_after_a_refusal(self, sink: Sink, peer: Peer) -> None:
        """Batches after a rejected one are accepted."""
        if not self.can_refuse:
            pytest.skip("this destination refuses nothing")
        peer.refuse()
        with contextlib.suppress(Reject):
            sink.write(example_batches())
        before = len(peer.steps())
        sink.write(example_batches(seq=1))
        assert len(peer.steps()) == before + 10

    def test_closes(self, sink: Sink, peer: Peer) -> None:
        """Closing twice is allowed, before and after a write."""
        sink.write(example_batches())
        sink.close()
        sink.close()


@contextlib.contextmanager
def closing(sink: Sink) -> Iterator[Sink]:
    """Close a sink at the end of a block."""
    try:
        yield sink
    finally:
        sink.close()
