"""Stored runs as records again: what was logged together comes back together, in the order in which it was written."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from benchmarks.zoo import evaluate
from benchmarks.zoo.story import Story
from stepscope.diagnosis.record_order import Written, in_order
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.hub.store.read.replay import extent_of, replay
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.hub.store.store import open_store
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Instrument, Metric, Record, Span

SECOND = 10**9
START = 1_790_000_000 * SECOND


def records_of(rank: int) -> list[Record]:
    """Two metrics in a record, a value without a step, a counter that is left out, a span and the start."""
    made: list[Record] = [Event(START + rank, None, None, None, None, 9, "train.run.started", {"config": {}})]
    for step in range(5):
        at = START + step * SECOND + rank * 1000
        made.append(Metric(at, step, "epoch" if step == 3 else None, None, {"loss": 1.0 + step, "lr": 0.5}))
        made.append(Metric(at + 10, None, None, None, {"seconds": float(step)}))
        made.append(Metric(at + 20, step, None, None, {"sent": 1.0}, {}, Instrument("sum")))
        made.append(Span(at, SECOND // 2, step, None, bytes([1]) * 16, bytes([rank + 1, step + 1]) * 4, None, "step"))
    return made


def test_what_was_stored_comes_back_in_order(tmp_path: Path) -> None:
    """Of two ranks that were stored one after another, the records alternate as they were written."""
    store = open_store(tmp_path / "store")
    try:
        for rank in range(2):
            who = Writer(id=f"w{rank}", run="r", project="p", rank=rank, world_size=2, host=f"h{rank}", wall_ns=START)
            store.write_many([Batch(who, 1, records_of(rank))])
        number = run_number(store.engine, "r")
        assert number is not None
        shares, slices = zip(*replay(store.engine, number, extent_of(store.engine, number)), strict=True)
        found = [written for part in slices for written in part]
    finally:
        store.close()
    assert shares == (1.0,)
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert {each.host for each in found} == {"h0", "h1"}
    for rank in range(2):
        kept = [each for each in records_of(rank) if not (isinstance(each, Metric) and each.instrument)]
        mine = [each.record for each in found if each.rank == rank]
        assert sorted(mine, key=repr) == sorted(kept, key=repr)


RUNS = ("plain", "periodic_stall", "lr_jump", "straggler")


def batches_of(story: Story, size: int) -> list[Batch]:
    """The records of a run as its writers sent them, so many in a batch."""
    by_rank: dict[int, list[Record]] = {}
    for told in story.told():
        by_rank.setdefault(told.rank, []).append(told.record)
    made = []
    for rank, records in by_rank.items():
        host = f"node{rank // story.per_host}"
        who = Writer(id=f"w{rank}", run="r", project="p", rank=rank, world_size=story.world, host=host, wall_ns=START)
        parts = [records[at : at + size] for at in range(0, len(records), size)]
        made += [Batch(who, number, part) for number, part in enumerate(parts, 1)]
    return made


def found_in(written: Iterable[Written], story: Story, chunk: int = 1) -> list[tuple[object, ...]]:
    """What is found in records that come in chunks of one rank."""
    diagnosis, all_of_it, at = Diagnosis(world=story.world, earlier=story.earlier), list(written), 0
    while at < len(all_of_it):
        first, end = all_of_it[at], at + 1
        while end < min(at + chunk, len(all_of_it)) and all_of_it[end].rank == first.rank:
            end += 1
        diagnosis.feed_many(first.rank, [each.record for each in all_of_it[at:end]], first.attempt, first.host)
        at = end
    return sorted((each.kind, each.severity, str(each.step), each.ranks, each.text) for each in diagnosis.findings())


@pytest.mark.parametrize("name", RUNS)
def test_the_same_records_give_the_same_findings(name: str, tmp_path: Path) -> None:
    """From the journal, from the store and live in chunks of any size, whatever ends in the same nanosecond."""
    rng = evaluate.seeded(name, 3)
    made = evaluate.FAULTS[name](rng)[0] if name in evaluate.FAULTS else evaluate.HEALTHY[name](rng)
    batches = batches_of(made, random.Random(name).randrange(5, 200))
    journal = in_order(batches)
    expected = found_in(journal, made)
    store = open_store(tmp_path / "store")
    try:
        store.write_many(batches)
        number = run_number(store.engine, "r")
        assert number is not None
        slices = replay(store.engine, number, extent_of(store.engine, number))
        stored = [written for _, part in slices for written in part]
    finally:
        store.close()
    for chunk in (2, 17, 1000):
        assert found_in(journal, made, chunk) == expected
    assert found_in(stored, made) == expected


@pytest.mark.parametrize("names", [("z.load", "m.work", "a.step"), ("a.load", "m.work", "z.step")])
def test_spans_that_end_in_the_same_nanosecond_come_back_from_the_inside(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    """An inner span comes before the one around it, whatever their names and ids are, and the metrics after both."""
    made: list[Record] = []
    rng = random.Random(1)
    for step in range(20):
        begun, ids = START + step * SECOND, [rng.randbytes(8) for _ in names]
        for depth, name in enumerate(names):
            parent = ids[depth + 1] if depth + 1 < len(names) else None
            first = begun + (len(names) - 1 - depth) * 1000
            took = begun + SECOND // 2 - first
            made.append(Span(first, took, step, None, bytes([1]) * 16, ids[depth], parent, name))
        made.append(Metric(begun + SECOND // 2, step, None, None, {"loss": 1.0}))
    store = open_store(tmp_path / "store")
    try:
        store.write_many([Batch(Writer(id="w", run="r", project="p", wall_ns=START), 1, made)])
        number = run_number(store.engine, "r")
        assert number is not None
        found = [each for _, part in replay(store.engine, number, extent_of(store.engine, number)) for each in part]
    finally:
        store.close()
    assert [each.record for each in found] == made
