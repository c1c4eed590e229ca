"""Delivery in small pieces: each record once and in order, whatever is refused in between; and pieces are small."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.write import Journal
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Metric
from stepscope.model.writer import Writer
from stepscope.pump import OPEN_AFTER, Pump
from stepscope.sdk.slices import PIECE_BYTES, Slices
from stepscope.wire import frames

NAME = "r0-a1-host-1-abc"


class Peer:
    """Takes what it is given, but for every so many offers."""

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
    """Where the destination tells batches by number."""
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
    """And cost the others nothing."""
    write_journal(tmp_path, [packed(1), msgspec.msgpack.encode([99, "what"]), packed(2)])
    peer = Peer()
    assert deliver(tmp_path, peer).unreadable == 1
    assert [step for offer in peer.offers for step in offer] == [1, 2]
