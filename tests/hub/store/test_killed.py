"""A store whose process is killed keeps what it acknowledged, and keeps nothing twice."""

import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.hub.store import maintenance
from stepscope.hub.store.store import open_store

pytest.importorskip("tests.chdb")

KILLS = 8
PACKAGE = Path(stepscope.__file__).parents[1]
WRITER = """
import os, signal, sys
from pathlib import Path
from stepscope.hub.store.store import open_store
from stepscope.model.ports import Batch
from stepscope.model.records import Log, Metric, Span
from stepscope.model.ports import Writer

folder, first, dies_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
T = 1_790_000_000_000_000_000
store = open_store(folder)
insert, done = store.engine.insert, 0

def counted(table, block):
    global done
    insert(table, block)
    done += 1
    if done == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

store.engine.insert = counted

def batch(seq):
    records = [Metric(T + seq, seq, None, None, {f"key{key}": float(seq)}) for key in range(20)]
    records.append(Span(T + seq, 1, seq, None, (seq + 1).to_bytes(16, "big"), (seq + 1).to_bytes(8, "big"), None, "s"))
    records.append(Log(T + seq, seq, None, None, None, 9, str(seq)))
    return Batch(Writer(id=f"w{seq % 3}", run="killed", project="p", rank=seq % 3), seq // 3, records)

while True:
    assert store.write_many([batch(seq) for seq in range(max(first - 7, 0), first + 5)]) == [None] * min(12, first + 5)
    first += 5
    print(first, flush=True)
"""


def lines(process: "subprocess.Popen[str]", seconds: float) -> Iterator[int]:
    """What the process acknowledged, until it dies or so much time has passed since its last word."""
    assert process.stdout is not None
    ready = select.poll()  # unlike select.select it takes any number of open files
    ready.register(process.stdout, select.POLLIN)
    while ready.poll(seconds * 1000):
        line = process.stdout.readline()
        if not line.endswith("\n"):
            return
        yield int(line)


def until_killed(folder: Path, first: int, chance: random.Random) -> int:
    """Run a writer until it dies; the number of the first batch that was not acknowledged."""
    by_insert = chance.random() < 0.5
    dies_at = chance.randrange(1, 30) if by_insert else 0
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(first), str(dies_at)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    acknowledged = first
    for _ in range(chance.randrange(1, 6) if not by_insert else 100):
        acknowledged = next(lines(process, 60), acknowledged)
    if not by_insert:
        acknowledged = max(lines(process, chance.uniform(0, 0.05)), default=acknowledged)
        process.kill()
        acknowledged = max(lines(process, 0), default=acknowledged)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -9, errors
    return acknowledged


def test_acknowledged_is_stored_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    """Killed at random moments and right behind random inserts, again and again, each time going on after it."""
    chance = random.Random(20261115)
    first = 0
    for _ in range(KILLS):
        first = until_killed(tmp_path / "store", first, chance)
    store = open_store(tmp_path / "store")
    try:
        rows = {
            table: store.engine.query(f"SELECT step FROM {table}")["step"] for table in ("metrics", "spans", "logs")
        }
        assert first > 0
        assert set(range(first)) <= set(rows["spans"])
        assert sorted(rows["spans"]) == sorted(rows["logs"]) == sorted(set(rows["spans"]))
        assert sorted(rows["metrics"]) == sorted(rows["spans"] * 20)
        assert maintenance.check(store.engine) == []
    finally:
        store.close()
