"""Periodic measures, compacts and checks a store."""

import random
import shutil
from pathlib import Path

import pytest

from stepscope.hub.store import maintenance
from stepscope.hub.store.maintenance import drop_runs
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.hub.store.store import open_store
from stepscope.model.ports import Batch
from stepscope.model.records import Log, Metric, Record, Span
from tests.hub.store.contract import T, line, writer

pytest.importorskip("tests.chdb")


def test_points_are_small_after_compaction(tmp_path: Path) -> None:
    """At most 20 bytes for a point of noise, in one part per table, with every point still there."""
    chance = random.Random(1)
    store = open_store(tmp_path / "store")
    for seq in range(5):
        records: list[Record] = [
            Metric(
                T + step * 10**8 + chance.randrange(10**6),
                step,
                None,
                "trainer",
                {f"k{key}": chance.random() for key in range(20)},
            )
            for step in range(seq * 500, seq * 500 + 500)
        ]
        store.write(Batch(writer("r"), seq, records))
    maintenance.compact(store.engine)
    info = maintenance.info(store.engine)
    parts = {table.name: table.parts for table in info.tables if table.rows}
    assert (info.points, parts["metrics"], parts["ledger"]) == (50_000, 1, 1)
    assert 8 < info.bytes_per_point <= 20
    assert info.bytes == sum(table.bytes for table in info.tables)
    assert line(store, "r", "trainer/k7").total == 2500
    assert maintenance.check(store.engine) == []
    store.close()


def test_damage_is_found(tmp_path: Path) -> None:
    """A flipped byte in a part is reported with its table."""
    store = open_store(tmp_path / "store")
    store.write(Batch(writer("r"), 0, [Metric(T + step, step, None, None, {"k": 0.1 * step}) for step in range(5000)]))
    (path,) = store.engine.query("SELECT path FROM system.parts WHERE active AND table = 'metrics'")["path"]
    data = Path(path) / "data.bin"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    assert any(problem.startswith("metrics: ") for problem in maintenance.check(store.engine))
    store.close()


def test_a_part_that_was_deleted_is_missed(tmp_path: Path) -> None:
    """The engine does not know that it was there, but the ledger does."""
    store = open_store(tmp_path / "store")
    trace = bytes(range(16))
    store.write(
        Batch(writer("r"), 0, [Span(T, 1, 1, None, trace, trace[8:], None, "s"), Metric(T, 1, None, None, {"k": 1})])
    )
    assert maintenance.check(store.engine) == []
    (path,) = store.engine.query("SELECT path FROM system.parts WHERE active AND table = 'spans'")["path"]
    store.close()
    shutil.rmtree(path)
    store = open_store(tmp_path / "store")
    assert maintenance.check(store.engine) == ["spans and open_spans: 0 spans instead of the 1 that were stored"]
    store.close()


def test_what_was_dropped_is_not_missed(tmp_path: Path) -> None:
    """The ledger remembers the batches of a run that went, and counts them no more."""
    store = open_store(tmp_path / "store")
    for run in ("a", "b"):
        store.write(Batch(writer(run), 0, [Metric(T, 1, None, None, {"k": 1}), Log(T, 1, None, None, None, 9, "x")]))
    number = run_number(store.engine, "a")
    assert number is not None
    drop_runs(store, [number])
    assert maintenance.check(store.engine) == []
    store.close()


def test_a_small_store_does_not_grow(tmp_path: Path) -> None:
    """Parts that are alone are left as they are."""
    store = open_store(tmp_path / "store")
    store.write(Batch(writer("r"), 0, [Metric(T, 1, None, None, {"k": 1})]))
    before = maintenance.info(store.engine)
    maintenance.compact(store.engine)
    assert maintenance.info(store.engine) == before
    store.close()
