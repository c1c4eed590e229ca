"""Answers that are kept: right after every write, bounded in memory, none of what changes by itself."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub.store.columns import AnswerCache

pytest.importorskip("tests.chdb")

from stepscope.hub.store.columns import numbers
from stepscope.hub.store.embedded import Chdb

DIE = "SELECT rand64() AS n"
"""Has another answer each time it is asked."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Chdb]:
    """An engine with an empty table."""
    made = Chdb(tmp_path / "store")
    made.execute("CREATE TABLE points (n UInt32) ENGINE = MergeTree ORDER BY n")
    yield made
    made.close()


def put(engine: Chdb, *values: int) -> None:
    """Insert values."""
    engine.insert("points", {"n": numbers("UInt32", values)})


def test_a_question_is_asked_once_until_something_is_written(engine: Chdb) -> None:
    """Rows that are added and statements that are run make all answers be looked for again; cancelling does not."""
    first = engine.query(DIE).one("n")
    assert engine.query(DIE).one("n") == first
    assert [found.one("n") for found in engine.query_many([DIE, DIE])] == [first, first]
    engine._kill("nobody")
    engine._return_memory()
    assert engine.query(DIE).one("n") == first
    put(engine, 1)
    second = engine.query(DIE).one("n")
    assert second != first
    engine.execute("TRUNCATE TABLE points")
    assert engine.query(DIE).one("n") != second


def test_what_a_write_left_behind_is_read(engine: Chdb) -> None:
    """Also after one that failed, of which the engine may have written some."""
    count = "SELECT count() AS n FROM points"
    for wanted in range(5):
        assert engine.query(count).one("n") == wanted
        put(engine, wanted)
    before = engine.query(DIE).one("n")
    with pytest.raises(Exception, match="nowhere"):
        engine.insert("nowhere", {"n": numbers("UInt32", [1])})
    assert engine.query(DIE).one("n") != before
    engine.execute("ALTER TABLE points DELETE WHERE n < 3")
    assert engine.query(count).one("n") == 2


def test_rows_are_seen_by_every_query_after_their_insert(engine: Chdb) -> None:
    """However many ask for them at the same time, and keep their answers."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            engine.query("SELECT count() AS n FROM points")

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for each in asking:
        each.start()
    try:
        for wanted in range(1, 11):
            put(engine, wanted)
            assert engine.query("SELECT count() AS n FROM points").one("n") == wanted
    finally:
        ended.set()
        for each in asking:
            each.join()


def test_tables_of_the_system_are_asked_each_time(engine: Chdb) -> None:
    """Parts are merged, and threads begin and end, without a write."""
    asked = "SELECT rand64() AS n FROM system.one"
    assert engine.query(asked).one("n") != engine.query(asked).one("n")


def test_the_answers_take_no_more_than_their_share_of_memory() -> None:
    """Those that were not asked for the longest go first, and one that is too large is not kept at all."""
    cache = AnswerCache(most_bytes=100, largest=60)
    for name in "abc":
        cache.put(name, bytes(29), cache.version)
    assert cache.get("a") == bytes(29)
    cache.put("d", bytes(29), cache.version)
    assert [name in cache for name in "abcd"] == [True, False, True, True]
    cache.put("e", bytes(60), cache.version)
    assert "e" not in cache
    assert [name in cache for name in "acd"] == [True, True, True]


def test_an_answer_from_before_a_write_is_not_kept() -> None:
    """A query that was running while something was written may not have seen it."""
    cache = AnswerCache()
    version = cache.version
    cache.clear()
    cache.put("a", b"old", version)
    assert cache.get("a") is None
    cache.put("a", b"new", cache.version)
    assert cache.get("a") == b"new"
