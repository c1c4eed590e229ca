"""Batches of a shard that is away go to a journal of that shard, and come back from it; the others are stored."""

from collections.abc import Sequence
from pathlib import Path

from stepscope.hub.fleet.deferred import DeferredShard, DeferringStore
from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.store.schema import ShardUnavailable
from stepscope.hub.store.store import Outcome
from stepscope.journal.following import Cursors
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log

HUB = Writer(id="hub", run="hub", project="stepscope")


def batch(run: str, seq: int) -> Batch:
    """A batch of one record; the shard of a run is the number in its name."""
    return Batch(Writer(id="w", run=run, project="p"), seq, [Log(1, None, None, None, None, 9, run)])


class TwoShards:
    """A store of two shards, some of which are away."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.taken: list[tuple[str, int]] = []

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Take the batches of shards that are there."""
        outcomes: list[Outcome] = []
        for each in batches:
            shard = int(each.writer.run[-1])
            outcomes.append(ShardUnavailable("away", shard) if shard in self.away else None)
            self.taken += [(each.writer.run, each.seq)] if outcomes[-1] is None else []
        return outcomes


class World:
    """A store that defers, its journals and a clock."""

    def __init__(self, folder: Path, most_bytes: int = 10**6) -> None:
        self.store, self.now = TwoShards(), 0.0
        cursors, counters = Cursors(folder, "x"), Counters()
        self.shards = [
            DeferredShard(folder / f"shard-{index}", HUB, cursors, counters, clock=lambda: self.now)
            for index in range(2)
        ]
        takes_writes = lambda shard: shard not in self.store.away  # noqa: E731
        self.deferring = DeferringStore(self.store, self.shards, lambda each: "test", takes_writes, most_bytes)

    def read(self, shard: int) -> list[ReceivedBatch]:
        """Read what a shard deferred, and count it as stored or deferred again."""
        found = self.shards[shard].read()
        assert not any(self.deferring.write_many([item.batch for item in found]))
        self.shards[shard].settle()
        return found


def test_only_what_belongs_to_the_shard_that_is_away_waits(tmp_path: Path) -> None:
    """The rest is stored; what waited is stored when the shard is back, with its receiver, once."""
    world = World(tmp_path)
    world.store.away = {1}
    group = [batch("run-0", 0), batch("run-1", 0), batch("run-0", 1)]
    assert world.deferring.write_many(group) == [None] * 3
    assert [world.deferring.outcome(each) for each in group] == ["", "deferred", ""]
    assert world.store.taken == [("run-0", 0), ("run-0", 1)]
    assert world.deferring.bytes_behind() > 0
    assert world.shards[1].read() == []
    world.now += 10
    world.store.away = set()
    assert [(each.receiver, each.batch.writer.run, each.batch.seq) for each in world.read(1)] == [("test", "run-1", 0)]
    assert world.store.taken[2:] == [("run-1", 0)]
    assert (world.read(1), world.deferring.bytes_behind()) == ([], 0)


def test_what_still_cannot_be_stored_waits_on(tmp_path: Path) -> None:
    """It is tried with a little, put back, left alone for a while again, and counted as deferred once."""
    world = World(tmp_path)
    world.store.away = {0}
    assert world.deferring.write_many([batch("run-0", seq) for seq in range(3)]) == [None] * 3
    for _ in range(3):
        world.now += 10
        assert {world.deferring.outcome(item.batch) for item in world.read(0)} == {"retried"}
        assert world.shards[0].read() == []
    world.store.away, world.now = set(), world.now + 10
    while world.read(0):
        pass
    assert sorted(world.store.taken) == [("run-0", 0), ("run-0", 1), ("run-0", 2)]


def test_everything_waits_while_no_shard_takes_anything(tmp_path: Path) -> None:
    """And when the journals of shards are full: then nothing is copied, and nothing counts as safe."""
    world = World(tmp_path, most_bytes=0)
    world.store.away = {0, 1}
    (outcome,) = world.deferring.write_many([batch("run-1", 0)])
    assert isinstance(outcome, ShardUnavailable)
    world.store.away = {1}
    (outcome,) = world.deferring.write_many([batch("run-1", 0)])
    assert isinstance(outcome, ShardUnavailable)
    assert (world.store.taken, world.deferring.bytes_behind()) == ([], 0)


def test_a_new_process_finds_what_waits(tmp_path: Path) -> None:
    """The journal of a shard outlives the hub."""
    first = World(tmp_path)
    first.store.away = {1}
    first.deferring.write_many([batch("run-1", 0)])
    first.deferring.close()
    second = World(tmp_path)
    assert [each.batch.seq for each in second.read(1)] == [0]
    assert second.store.taken == [("run-1", 0)]
