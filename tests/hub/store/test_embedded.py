"""The embedded engine: queries, inserts, limits, closing."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb")

PROGRAM = """
import sys
from pathlib import Path
from stepscope.hub.store import embedded

engine = embedded.Chdb(Path(sys.argv[1]) / "store")
known = dict(engine.query("SELECT name, value FROM system.server_settings").rows("name", "value"))
print(sorted(name for name, value in embedded._SERVER.items() if known.get(name) != str(value)))
for many in range(100, 110):
    engine.query(f"SELECT number % 7 AS n, min(number), sum(number) FROM numbers({many}) GROUP BY n ORDER BY n")
print(engine.query("SELECT sum(value) AS n FROM system.events WHERE event = 'CompileFunction'").one("n"))
told = engine.query("SELECT stats FROM system.jemalloc_stats").one("stats")
wanted = ("opt.dirty_decay_ms: 500 ", "opt.tcache_max: 2048\\n", "opt.tcache_nslots_small_max: 32\\n")
print([each for each in wanted if each not in told])
engine.close()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What an engine says of itself, in a process of its own: one process opens one folder."""
    line = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("engine"))]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_limit_of_the_engine_is_known_to_it(said: list[str]) -> None:
    """It passes over names it does not know or use, and would then take a thousand threads and gigabytes of caches."""
    assert said[0] == "[]"


def test_the_allocator_keeps_little_of_what_was_freed(said: list[str]) -> None:
    """It reads its settings when it is loaded, from a variable that a later version may call otherwise."""
    assert said[2] == "[]"


def test_a_query_that_ran_ten_times_is_not_compiled(said: list[str]) -> None:
    """Compiling costs more than short queries take; those of a page that is open for hours are compiled."""
    assert said[1] == "0"


LOADED = """
import sys, threading, time
from pathlib import Path
from stepscope.hub.store import embedded

def threads():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("Threads")))

engine = embedded.Chdb(Path(sys.argv[1]) / "store")
often = "old_parts_lifetime = 1, cleanup_delay_period = 0, max_cleanup_delay_period = 1"
many = "parts_to_throw_insert = 9999, parts_to_delay_insert = 9999"
engine.execute(f"CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS {often}, {many}")
engine.close()
engine = embedded.Chdb(Path(sys.argv[1]) / "store")
before = threads()
engine.execute("SYSTEM STOP MERGES t")
for number in range(130):
    engine.execute(f"INSERT INTO t SELECT {number}")
engine.execute("SYSTEM START MERGES t")
engine.execute("OPTIMIZE TABLE t FINAL")
while int(engine.query("SELECT count() AS n FROM system.parts WHERE NOT active").one("n")):
    time.sleep(0.1)
print(threads() - before)
before = threads()
asked = [f"SELECT uniqExact(number) AS n FROM numbers(200000) WHERE number != {at}" for at in range(60)]
asking = [threading.Thread(target=engine.query, args=(each,)) for each in asked]
for thread in asking:
    thread.start()
for thread in asking:
    thread.join()
print(threads() - before)
engine.close()
"""


def test_threads_are_few_whatever_the_load(tmp_path: Path) -> None:
    """The engine keeps each thread for ever: those that remove many parts, and those of queries that come at once."""
    line = [sys.executable, "-c", LOADED, str(tmp_path)]
    removing, asking = map(int, subprocess.run(line, capture_output=True, text=True, check=True).stdout.split())
    assert removing < 20  # 128 with the engine's own setting
    assert asking < 60  # 180 if all ran at once


TABLES = """
import sys
from pathlib import Path
from stepscope.hub.store.engine import TABLE_SETTINGS
from stepscope.hub.store.store import open_store

def lacking(engine):
    tables = "FROM system.tables WHERE database = 'stepscope' AND engine LIKE '%MergeTree'"
    rows = list(engine.query(f"SELECT name, engine_full {tables}").rows("name", "engine_full"))
    assert "requests" in dict(rows)
    settings = [f"{name} = {value}" for name, value in TABLE_SETTINGS.items()]
    return [table for table, full in rows if any(each not in full for each in settings)]

for _ in ("new", "opened again"):
    store = open_store(Path(sys.argv[1]) / "store")
    print(lacking(store.engine))
    store.engine.execute(f"ALTER TABLE requests RESET SETTING {', '.join(TABLE_SETTINGS)}")
    store.close()
"""


def test_every_table_survives_a_power_failure_and_is_tidied_by_one_thread(tmp_path: Path) -> None:
    """The table of requests had none of the settings: 128 threads removed its parts, and repeats were stored twice."""
    line = [sys.executable, "-c", TABLES, str(tmp_path)]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines() == ["[]", "[]"]


WAKE_UPS = """
import os, sys, time
from pathlib import Path
from stepscope.hub.store.store import open_store

def wake_ups():
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().startswith("Bg"):
            lines = (thread / "status").read_text().splitlines()
            found[thread.name] = sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    return sum(found.values())

store = open_store(Path(sys.argv[1]) / "store")
before = wake_ups()
time.sleep(4)
print(wake_ups() - before)
store.close()
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_an_idle_store_rests(tmp_path: Path) -> None:
    """Its threads are not woken for each table many times a second; before, 40 times a second after a start."""
    line = [sys.executable, "-c", WAKE_UPS, str(tmp_path)]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert int(said) < 60
