"""The newest records are found among very many without reading all of them, and are the same ones."""

from pathlib import Path

import pytest

pytest.importorskip("tests.chdb", reason="the store needs chDB")

from stepscope.hub.store.read.log_rows import _WINDOWS, newest_log_rows, read_log_rows
from stepscope.hub.store.store import open_store
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event

MOST, MANY = 3, 400


def test_the_newest_records_of_a_run(tmp_path: Path) -> None:
    """Whether they are all among the last, spread out, rare or none: as one query of all gives them."""
    store = open_store(tmp_path / "store")
    records = [
        Event(10**18 + at, at, None, None, None, 9, "named", {"rest": at % 20, "rare": at % 300 == 0})
        for at in range(MANY)
    ]
    store.write(Batch(Writer(id="w", run="r", project="p", wall_ns=10**18), 1, records))
    asked: list[str] = []
    query = store.engine.query
    store.engine.query = lambda sql: (asked.append(sql), query(sql))[1]  # type: ignore[method-assign]
    among = "run = (SELECT max(run) FROM logs) AND name = 'named'"
    for where, reads in {
        "1": 2,  # in the first window
        "attr_values[indexOf(attr_names, 'rest')] = '7'": 4,  # in the second
        "attr_values[indexOf(attr_names, 'rare')] IN ('true', '1', 'True')": 5,  # in none: too few are there at all
        "0": 5,
    }.items():
        asked.clear()
        found = newest_log_rows(store.engine, among, where, MOST)
        assert len(asked) == reads
        assert found == read_log_rows(store.engine, "logs", f"{among} AND {where}", f"time DESC, rank LIMIT {MOST}")
    assert newest_log_rows(store.engine, f"{among} AND time < {10**18 + MOST * _WINDOWS[0]}", "1", MOST)
    store.close()
