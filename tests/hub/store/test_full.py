"""A store on a disk that is really full refuses for now, and loses nothing and repeats nothing over it."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.hub.store import maintenance
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.store import open_store
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Log, Metric, Record
from tests.hub.store.contract import T, line, writer

pytest.importorskip("tests.chdb")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def _batch(seq: int, chance: random.Random) -> Batch:
    records: list[Record] = [
        Metric(T + step, step, None, "trainer", {f"k{key}": chance.random() for key in range(20)})
        for step in range(seq * 500, seq * 500 + 500)
    ]
    return Batch(
        writer("full"), seq, [*records, Log(T + seq, seq, None, None, None, 9, chance.randbytes(200_000).hex())]
    )


def test_a_full_disk_is_refused_until_there_is_room(small_disk: Path) -> None:
    """With a Retry, and everything offered again is in once when the disk has room."""
    chance = random.Random(7)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(30 * 2**20))
    store = open_store(small_disk / "store", reserve=0)
    outcomes: list[object] = []
    batches = [_batch(seq, chance) for seq in range(60)]
    for batch in batches:
        outcomes += store.write_many([batch])
        if outcomes[-1] is not None:
            break
    assert isinstance(outcomes[-1], Retry), f"{len(outcomes)} batches did not fill the disk"
    ballast.unlink()
    batches = batches[: len(outcomes) + 2]
    assert store.write_many(batches) == [None] * len(batches)
    (row,) = list_runs(store.engine, ids=["full"])
    assert (row.counts["points"], row.counts["logs"]) == (len(batches) * 10_000, len(batches))
    assert line(store, "full", "trainer/k3").total == len(batches) * 500
    assert len(store.engine.query("SELECT time FROM logs")) == len(batches)
    assert maintenance.check(store.engine) == []
    store.close()
