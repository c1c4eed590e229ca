"""One filled hub for several measurements: made by the first that asks, measured while it fills, gone at exit."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import hub_journals as journals
from benchmarks.hub_process import HubProcess
from benchmarks.results import Progress
from benchmarks.spawn import fresh

RANKS = 8
WIDE_RANKS = 1024
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Filling:
    """What one kind of journal took to be stored: items per second from the first commit seen to the last."""

    items: int
    seconds: float


@dataclass(frozen=True, slots=True)
class World:
    """A home folder with long series (`one`, `ten`), many runs, and runs of 8 (`big`) and 1,024 ranks (`wide`)."""

    folder: Path
    scale: float
    fillings: dict[str, Filling]
    weights: dict[str, float]

    def steps(self) -> int:
        """The steps of the run `big`."""
        return int(100_000 * self.scale)


@functools.cache
def filled(quick: bool, progress: Progress) -> World:
    """Make the world, a twentieth of it in a quick run."""
    folder = Path(tempfile.mkdtemp(prefix="stepscope-bench-hub-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    scale = 0.05 if quick else 1.0
    home = folder / "home"
    HubProcess(folder).stop()  # the folder is a hub's from now on
    progress("hub: writing a table of runs and a run of many ranks into the store")
    fresh("benchmarks.hub_store", {"home": str(home), "runs": int(5000 * scale), "ranks": int(WIDE_RANKS * scale)})
    hub = HubProcess(folder)
    try:
        fillings = {name: _fill(hub, folder, name, write, progress) for name, write in _writes(scale).items()}
        hub.stop()
    finally:
        hub.close()
    progress("hub: making the store compact")
    weights = fresh("benchmarks.hub_store", {"home": str(home), "compact": True})
    return World(folder, scale, fillings, weights)


Write = Callable[[Path], tuple[int, int]]
"""Writes journals under a home folder; returns records, and items in them."""


def _writes(scale: float) -> dict[str, Write]:
    steps = int(100_000 * scale)

    def single(home: Path) -> tuple[int, int]:
        counts = [journals.write_series(home, run, int(n * scale)) for run, n in (("one", 10**6), ("ten", 10**7))]
        return sum(counts), sum(counts)

    def several(home: Path) -> tuple[int, int]:
        records = journals.write_metrics(home, "big", RANKS, steps)
        return records, records * len(journals.KEYS)

    def spans(home: Path) -> tuple[int, int]:
        records = journals.write_spans(home, "big", RANKS, steps)
        return records, records

    return {"points, 1 in a record": single, f"points, {len(journals.KEYS)} in a record": several, "spans": spans}


def _fill(hub: HubProcess, folder: Path, name: str, write: Write, progress: Progress) -> Filling:
    """Write journals beside the home folder, move them in at once, and watch until all is stored."""
    staging = folder / "staging"
    records, items = write(staging)
    before = hub.stored("folder")
    progress(f"hub: {items:,} {name}: journals written, now storing")
    _move(staging / "runs", hub.home / "runs")
    seen = hub.wait_stored("folder", before + records, LIMIT_S)
    busy = [(moment, stored) for moment, stored in seen if stored > before]
    (first, at_first), (last, at_last) = busy[0], busy[-1]
    share = (at_last - at_first) / records
    if share < 0.5:  # stored in a commit or two: count from when it was seen to begin
        first, share = seen[0][0], 1.0
    return Filling(int(items * share), max(last - first, 1e-3))


def _move(source: Path, target: Path) -> None:
    """Move the writers' folders of every run, so that the hub finds whole journals."""
    for run in sorted(source.iterdir()):
        (target / run.name).mkdir(parents=True, exist_ok=True)
        for writer in sorted(run.iterdir()):
            os.rename(writer, target / run.name / writer.name)
    shutil.rmtree(source.parent)
