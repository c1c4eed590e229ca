"""A source without the records its sink is not to get: what passes is offered, what does not is counted apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import Journal
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.pump import OPEN_AFTER, Pump
from stepscope.sdk.shipping.sink_worker import MAX_READS, PIECE_BYTES, Filtered, Slices
from stepscope.sinks.registry import RecordFilter
from stepscope.wire import frames

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
    """Long ranges without a matching record are settled immediately, with regular returns to the caller."""
    nothing = [Batch(WRITER, seq, [Metric(seq, 0, None, "system", {"cpu": 1.0})]) for seq in range(MAX_READS + 5)]
    source = Source([*nothing, batch(1000)])
    records = Filtered(source, ONLY_LOSS)
    assert [each.records for each in records.read(1)] == [[]]
    assert source.settled == MAX_READS
    assert [len(each.records) for each in records.read(1)] == [2]
    records.settle()
    assert records.counts["filtered"] == MAX_READS + 5 + 1
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


NAME = "r0-a1-host-1-abc"


class Peer:
    """Accepts batches, except every n-th offer."""

    timeout = 1.0

    def __init__(self, *, divisible: bool = True, busy: int = 0) -> None:
        self.divisible = divisible
        self.busy = busy
        self.offers: list[list[int]] = []

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Take it, unless busy."""
        if self.busy and len(self.offers) == 3:
            self.busy -= 1
            raise Retry("busy")
        self.offers.append([record.step or 0 for batch in batches for record in batch.records])
        return {}

    def close(self) -> None:
        """Nothing is open."""


def write_journal(home: Path, records: Sequence[bytes]) -> None:
    """One batch of packed records."""
    journal = Journal(home / "runs" / "run" / NAME, Writer(id=NAME, run="run", project="p"))
    journal.append(records)
    journal.close()


def packed(step: int, width: int = 1) -> bytes:
    """A metric."""
    return msgspec.msgpack.encode(Metric(step, step, None, "trainer", {f"key{n}": 0.5 for n in range(width)}))


def deliver(home: Path, peer: Peer) -> Slices:
    """Pump until the end, with no time passing but that of the waits."""
    now = 0.0
    following = Following(home, "s", unpack=frames.unpack_raw_batch)
    slices = Slices(following, lambda: peer.divisible)
    pump = Pump(peer, slices, Quarantine(home, "s"), clock=lambda: now)
    while not pump.at_end:
        now += pump.step().wait
    return slices


def test_pieces_are_small(tmp_path: Path) -> None:
    """By bytes, so that records of many values come few at a time; a large one comes alone."""
    write_journal(tmp_path, [packed(step, width=1 + step % 7) for step in range(500)] + [packed(500, 200)])
    peer = Peer()
    deliver(tmp_path, peer)
    assert [step for offer in peer.offers for step in offer] == list(range(501))
    assert peer.offers[-1] == [500]
    sizes = [sum(len(packed(step, 1 + step % 7)) for step in offer) for offer in peer.offers[:-1]]
    assert max(sizes) <= PIECE_BYTES


def test_a_busy_sink_gets_nothing_twice(tmp_path: Path) -> None:
    """Not even one that is busy for so long that it counts as dead, and is then probed."""
    write_journal(tmp_path, [packed(step) for step in range(500)])
    peer = Peer(busy=OPEN_AFTER + 3)
    deliver(tmp_path, peer)
    assert [step for offer in peer.offers for step in offer] == list(range(500))


def test_numbered_batches_stay_whole(tmp_path: Path) -> None:
    """Batches are not split for a destination that identifies them by number."""
    write_journal(tmp_path, [packed(step) for step in range(500)])
    peer = Peer(divisible=False)
    deliver(tmp_path, peer)
    assert peer.offers == [list(range(500))]


def test_delivered_when_the_last_piece_is(tmp_path: Path) -> None:
    """A kill in between repeats the batch under way; after the end nothing is left."""
    write_journal(tmp_path, [packed(step) for step in range(100)])
    peer = Peer()
    following = Following(tmp_path, "s", unpack=frames.unpack_raw_batch)
    pump = Pump(peer, Slices(following, lambda: True), Quarantine(tmp_path, "s"))
    pump.step()
    assert 0 < len(peer.offers[0]) < 100
    assert Following(tmp_path, "s").unread() > 0
    again = Peer()
    deliver(tmp_path, again)
    assert [step for offer in again.offers for step in offer] == list(range(100))
    assert Following(tmp_path, "s").unread() == 0


def test_unreadable_records_are_counted(tmp_path: Path) -> None:
    """Unreadable records are counted, and the others are delivered."""
    write_journal(tmp_path, [packed(1), msgspec.msgpack.encode([99, "what"]), packed(2)])
    peer = Peer()
    assert deliver(tmp_path, peer).unreadable == 1
    assert [step for offer in peer.offers for step in offer] == [1, 2]
