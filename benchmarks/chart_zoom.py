"""Charts of one long series over HTTP, first and later, whole and zoomed in: from rollups, and from points alone.

`python -m benchmarks.chart_zoom 1000000 10000000 100000000` fills a store and prints milliseconds, on the clock and of
the hub's processor time, and how long the hub takes to start on it. The two runs of a size have the same points; one
of them is folded.
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
MAX_UNFOLDED = 20_000_000
"""A longer series is only read from rollups."""


def main(sizes: list[int]) -> None:
    """Fill a store, start a hub on it, and ask."""
    folder = Path(tempfile.mkdtemp(prefix="stepscope-chart-zoom-"))
    try:
        HubProcess(folder).stop()
        _fill(folder / "home" / "hub" / "store", sizes)
        began = time.monotonic()
        hub = HubProcess(folder)
        print(f"started in {time.monotonic() - began:.2f} s, {hub.cpu_s():.2f} s of processor time", flush=True)
        try:
            hub.wait_until_idle(30)
            hub.get("/api/runs?limit=10")
            head = "".join(f"{kind + ': first':>16}{'later':>9}{'CPU':>9}" for kind in ("cells", "points"))
            print(f"{'':24}{head}   ms")
            for size in sizes:
                for name, zoom in _zooms(size).items():
                    kinds = ("cells", "points") if size <= MAX_UNFOLDED else ("cells",)
                    took = [_ask(hub, f"{kind}{size}", zoom, spike=name != PART) for kind in kinds]
                    words = "".join(f"{first:>16.1f}{later:>9.1f}{used:>9.1f}" for first, later, used in took)
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
        if size <= MAX_UNFOLDED:
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


def _ask(hub: HubProcess, run: str, zoom: tuple[int, int], *, spike: bool) -> tuple[float, float, float]:
    """The first answer, the median of later ones, each of another range so that none is remembered, and their CPU."""
    took = []
    used = 0.0
    for number in range(ROUNDS):
        if number == 1:
            used = hub.cpu_s()
        began = time.perf_counter()
        low, high = zoom[0] + number, zoom[1] - number
        answer = hub.get(f"/api/runs/{run}/series?key=trainer/loss&points=1000&from={low}&to={high}")
        took.append((time.perf_counter() - began) * 1e3)
        (line,) = answer["series"]
        assert line["shape"] == "buckets"
        assert not spike or SPIKE in line["columns"]["max"]
    return took[0], sorted(took[1:])[(ROUNDS - 1) // 2], (hub.cpu_s() - used) / (ROUNDS - 1) * 1e3


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10**6, 10**7])
