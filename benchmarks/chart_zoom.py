"""Charts of one long series over HTTP, first and later, whole and zoomed in: from rollups, and from points alone.

`python -m benchmarks.chart_zoom 1000000 10000000` fills a store and prints milliseconds. The two runs of a size have
the same points; one of them is folded.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.hub_process import HubProcess
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.store import Store, open_store
from stepscope.hub.store.write.recovery import rebuild_totals
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric

T = 1_790_000_000_000_000_000
COMMITS = 200
SPIKE = 1e6
ROUNDS = 7
PART = "a 100th"


def main(sizes: list[int]) -> None:
    """Fill a store, start a hub on it, and ask."""
    folder = Path(tempfile.mkdtemp(prefix="stepscope-chart-zoom-"))
    try:
        HubProcess(folder).stop()
        _fill(folder / "home" / "hub" / "store", sizes)
        hub = HubProcess(folder)
        try:
            hub.wait_until_idle(30)
            hub.get("/api/runs?limit=10")
            print(f"{'':24}{'cells: first':>14}{'later':>9}{'points: first':>15}{'later':>9}   ms")
            for size in sizes:
                for name, zoom in _zooms(size).items():
                    took = [_ask(hub, f"{kind}{size}", zoom, spike=name != PART) for kind in ("cells", "points")]
                    words = "".join(f"{first:>14.1f}{later:>9.1f} " for first, later in took)
                    print(f"{size:>12,} {name:<11}{words}", flush=True)
            hub.stop()
        finally:
            hub.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _zooms(size: int) -> dict[str, tuple[int, int]]:
    return {"whole": (1, size), "half": (size // 4 + 1, 3 * size // 4), PART: (size // 3, size // 3 + size // 100)}


def _fill(path: Path, sizes: list[int]) -> None:
    store = open_store(path)
    for number in range(COMMITS):  # the ledger has their numbers
        store.write(
            Batch(Writer(id="w", run="other", project="p", wall_ns=T), number, [Metric(T, 0, None, None, {"x": 1.0})])
        )
    for size in sizes:
        _series(store, f"cells{size}", size)
    began = time.monotonic()
    store.fold_all()
    print(f"folded {sum(sizes):,} points in {time.monotonic() - began:.1f} s", flush=True)
    for size in sizes:
        _series(store, f"points{size}", size)
    store.close()


def _series(store: Store, run: str, size: int) -> None:
    """Insert the points of a run at once, as the commits that are in the ledger."""
    writer = Writer(id=run, run=run, project="p", wall_ns=T)
    store.write(Batch(writer, 0, [Metric(T, 0, None, "trainer", {"loss": 1.0})]))
    number = run_number(store.engine, run)
    series = store.engine.query(f"SELECT series FROM series WHERE run = {number}").one("series")
    each = -(-size // COMMITS)
    store.engine.execute(
        f"""INSERT INTO metrics (series, step, time, attempt, value, start, commit)
        SELECT {series}, toInt64(number + 1), {T} + toInt64(number + 1) * 1000000, 1,
            if(number = {size // 2}, {SPIKE}, sin(number / 10000) + (rand() % 1000) / 5000), 0,
            intDiv(number, {each}) + 1
        FROM numbers({size})"""
    )
    rebuild_totals(store.engine, [series], f"step > {NO_STEP}")


def _ask(hub: HubProcess, run: str, zoom: tuple[int, int], *, spike: bool) -> tuple[float, float]:
    """The first answer, and the median of later ones, each of another range so that none is remembered."""
    took = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        low, high = zoom[0] + number, zoom[1] - number
        answer = hub.get(f"/api/runs/{run}/series?key=trainer/loss&points=1000&from={low}&to={high}")
        took.append((time.perf_counter() - began) * 1e3)
        (line,) = answer["series"]
        assert line["shape"] == "buckets"
        assert not spike or SPIKE in line["columns"]["max"]
    return took[0], sorted(took[1:])[(ROUNDS - 1) // 2]


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10**6, 10**7])
