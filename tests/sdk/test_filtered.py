"""A source without the records its sink is not to get: what passes is offered, what does not is counted apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from stepscope.journal.quarantine import Quarantine
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Event, Metric, Record
from stepscope.model.writer import Writer
from stepscope.pump import Pump
from stepscope.sdk.filtered import MOST_READS, Filtered
from stepscope.sinks.record_filter import RecordFilter

WRITER = Writer(id="r0-a1-h-1-x", run="r", project="p")
ONLY_LOSS = RecordFilter(include=("loss", "e"))


class Source:
    """Batches in memory; those read since the last `settle` come again after `rewind`."""

    def __init__(self, batches: list[Batch]) -> None:
        self.waiting, self._read = list(batches), list[Batch]()
        self.settled = 0

    def read(self, limit: int) -> list[Batch]:
        """One batch at a time."""
        taken, self.waiting = self.waiting[:1], self.waiting[1:]
        self._read += taken
        return taken

    def settle(self) -> None:
        """Forget what was read."""
        self.settled += len(self._read)
        self._read = []

    def rewind(self) -> None:
        """Put back what was read."""
        self.waiting, self._read = self._read + self.waiting, []


class Picky:
    """A sink that is busy once, refuses every third event, and keeps the rest."""

    timeout = 1.0
    divisible = True

    def __init__(self) -> None:
        self.taken: list[Record] = []
        self._busy = 6

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Take, or refuse."""
        if self._busy:
            self._busy -= 1
            raise Retry("busy", 0.001)
        records = [record for batch in batches for record in batch.records]
        bad = [at for at, record in enumerate(records) if isinstance(record, Event)]
        self.taken += [record for record in records if not isinstance(record, Event)]
        if bad:
            raise Reject("no events", bad)
        return {}

    def close(self) -> None:
        """Nothing to close."""


def batch(seq: int) -> Batch:
    """A metric that passes in part, one that does not, and an event that passes and is refused."""
    return Batch(
        WRITER,
        seq,
        [
            Metric(seq, seq, None, None, {"loss": 1.0, "lr": 2.0}),
            Metric(seq, seq, None, "system", {"cpu": 1.0}),
            Event(seq, seq, None, None, None, 9, "e"),
        ],
    )


def test_every_record_has_one_count(tmp_path: Path) -> None:
    """Written, rejected, dropped and filtered add up to what was recorded, however often the sink was busy."""
    clock = iter(range(10**6))
    source = Source([batch(seq) for seq in range(10)])
    records = Filtered(source, ONLY_LOSS)
    sink = Picky()
    pump = Pump(sink, records, Quarantine(tmp_path, "s"), clock=lambda: float(next(clock)))
    records.counts = pump.counts
    while source.settled < 10:
        pump.step()
    counts = pump.counts
    assert (counts["written"], counts["rejected"], counts["dropped"], counts["filtered"]) == (10, 10, 0, 10)
    assert [record.values for record in sink.taken if isinstance(record, Metric)] == [{"loss": 1.0}] * 10


def test_long_stretches_without_a_record_that_passes() -> None:
    """They are settled at once, and the caller gets its turn now and then."""
    nothing = [Batch(WRITER, seq, [Metric(seq, 0, None, "system", {"cpu": 1.0})]) for seq in range(MOST_READS + 5)]
    source = Source([*nothing, batch(1000)])
    records = Filtered(source, ONLY_LOSS)
    assert [each.records for each in records.read(1)] == [[]]
    assert source.settled == MOST_READS
    assert [len(each.records) for each in records.read(1)] == [2]
    records.settle()
    assert records.counts["filtered"] == MOST_READS + 5 + 1
    assert records.read(1) == []


@pytest.mark.parametrize("seq", [0, 7])
def test_packed_records_stay_packed(seq: int) -> None:
    """As the hub's protocol wants them; one that passes whole is not packed anew, one that cannot be read passes."""
    packed = [msgspec.Raw(msgspec.msgpack.encode(record)) for record in batch(seq).records]
    odd = msgspec.Raw(b"\xc1")
    given = Batch(WRITER, seq, [*packed, odd])  # type: ignore[list-item]
    (found,) = Filtered(Source([given]), ONLY_LOSS).read(1)
    raw: list[object] = list(found.records)
    assert raw[1:] == [packed[2], odd]
    assert isinstance(raw[0], msgspec.Raw)
    assert msgspec.msgpack.decode(raw[0], type=Metric).values == {"loss": 1.0}
