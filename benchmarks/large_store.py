"""A large store over HTTP: the start of the hub, charts of long series, the table of many runs, a step of many ranks.

`python -m benchmarks.large_store` fills a store with three series of 1, 10 and 100 M points, 50,000 runs and a run of
1,024 ranks. A hub is started on it twice: the second one has the table of runs that the first one saved. It prints
milliseconds, of the first answer and the median of later ones, on the clock and of the hub's processor time, and what
the hub takes to start and of memory. Of each size up to 20 M there are two runs with the same points; one of them is
folded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.hub_process import HubProcess
from benchmarks.hub_store import WIDE_STEPS
from benchmarks.spawn import fresh
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
TABLES = {
    "first 100 of all runs": "/api/runs?limit=10{turn}",
    "what they can be filtered by": "/api/fields",
    "the first 100, sorted by a metric": "/api/runs?limit=10{turn}&metric=loss&sort=metrics.loss",
    "those that are finished": "/api/runs?limit=10{turn}&metric=loss&filter=status%3Dfinished",
}
WIDE = "/api/runs/wide/steps/{turn}?limit=16"


def main() -> None:
    """Fill a store, start a hub on it, and ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="*", default=[10**6, 10**7, 10**8], metavar="N")
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--ranks", type=int, default=1024)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stepscope-large-store-"))
    try:
        HubProcess(folder).stop()
        _fill(folder / "home" / "hub" / "store", args.points)
        fresh("benchmarks.hub_store", {"home": str(folder / "home"), "runs": args.runs, "ranks": args.ranks}, 3600)
        print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores", flush=True)
        for measure in (_summarise, _measure):
            began = time.monotonic()
            hub = HubProcess(folder)
            print(f"started in {time.monotonic() - began:.2f} s, {hub.cpu_s():.2f} s of processor time", flush=True)
            try:
                measure(hub, args)
                hub.stop()
            finally:
                hub.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _summarise(hub: HubProcess, args: argparse.Namespace) -> None:
    """Ask for the runs of a store that no hub has summarised yet; at its end the hub saves the table."""
    for name, path in TABLES.items() if args.runs else ():
        began = time.perf_counter()
        hub.request("GET", path.format(turn=0))
        print(f"{name}, for the first time ever: {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)
    hub.wait_until_idle(60)


def _measure(hub: HubProcess, args: argparse.Namespace) -> None:
    print(f"{'':46}{'first':>10}{'later':>10}{'CPU':>10}{'kB':>10}", flush=True)
    for name, path in TABLES.items() if args.runs else ():
        _show(name, _ask(hub, path, range(ROUNDS)))
    hub.wait_until_idle(60)
    for size in args.points:
        for name, zoom in _zooms(size).items():
            for kind in ("cells", "points") if size <= MAX_UNFOLDED else ("cells",):
                _show(f"{size:>13,} {name}, {kind}", _chart(hub, f"{kind}{size}", zoom, spike=name != PART))
    if args.ranks:
        _show(f"a step of {args.ranks:,} ranks, 16 of them", _ask(hub, WIDE, range(WIDE_STEPS - ROUNDS, WIDE_STEPS)))
    hub.wait_until_idle(60)
    print(f"{hub.own_bytes() / 1e6:.0f} MB of its own, {hub.rss_bytes() / 1e6:.0f} MB with pages of files", flush=True)


def _show(name: str, found: tuple[float, float, float, float]) -> None:
    first, later, used, size = found
    print(f"{name:<46}{first:>10.1f}{later:>10.1f}{used:>10.1f}{size:>10.1f}", flush=True)


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


def _chart(hub: HubProcess, run: str, zoom: tuple[int, int], *, spike: bool) -> tuple[float, float, float, float]:
    """Ask for a chart, each time of another range so that no answer is remembered."""

    def check(answer: Any) -> None:
        (line,) = answer["series"]
        assert line["shape"] == "buckets"
        assert not spike or SPIKE in line["columns"]["max"]

    path = f"/api/runs/{run}/series?key=trainer/loss&points=1000"
    ranges = [f"{path}&from={zoom[0] + turn}&to={zoom[1] - turn}" for turn in range(ROUNDS)]
    return _timed(hub, ranges, check)


def _ask(hub: HubProcess, path: str, turns: range) -> tuple[float, float, float, float]:
    return _timed(hub, [path.format(turn=turn) for turn in turns], lambda answer: None)


def _timed(hub: HubProcess, paths: list[str], check: Callable[[Any], None]) -> tuple[float, float, float, float]:
    """The first answer, the median of later ones, their processor time, all in ms, and their size in kB."""
    took, used, size = [], 0.0, 0
    for number, path in enumerate(paths):
        if number == 1:
            used = hub.cpu_s()
        began = time.perf_counter()
        body = hub.request("GET", path)
        took.append((time.perf_counter() - began) * 1e3)
        size = len(body)
        check(json.loads(body))
    rest = len(paths) - 1
    return took[0], sorted(took[1:])[rest // 2], (hub.cpu_s() - used) / rest * 1e3, size / 1e3


if __name__ == "__main__":
    sys.exit(main())
