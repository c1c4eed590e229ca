"""Stored runs as records again: what was logged together comes back together, in the order in which it was written."""

from pathlib import Path

import pytest

pytest.importorskip("chdb", reason="the hub's store needs chDB")

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
