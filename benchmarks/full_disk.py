"""How long `log` takes while the disk is full: `python -m benchmarks.full_disk FOLDER`, on a small file system."""

import os
import sys
import time
from pathlib import Path

import stepscope

CALLS = 20_000
"""Calls of each kind: 1 key, and every tenth with 1,000 keys."""


def main(folder: str) -> int:
    """Fill the disk, log on, and print the times of the calls and what became of the records."""
    filler = Path(folder) / "filler"
    run = stepscope.init(project="bench", home=Path(folder) / "home", probes=False, memory_quota=8 * 1024 * 1024)
    wide = {f"key{number}": float(number) for number in range(1000)}
    before = _times(run, wide)
    _fill(filler)
    during = _times(run, wide)
    filler.unlink()
    for name, times in (("disk has room", before), ("disk is full", during)):
        for kind in ("1 key", "1,000 keys"):
            ordered = sorted(times[kind])
            half, most, longest = (ordered[int((len(ordered) - 1) * part)] / 1e3 for part in (0.5, 0.999, 1.0))
            print(f"{name}, {kind}: p50 {half:.1f} us, p99.9 {most:.1f} us, longest {longest:.0f} us")
    run.finish(timeout=60)
    counts = {key: count for key, count in run.outcomes.snapshot().items() if "metric" in key}
    print(f"records: {counts}")
    return 0


def _times(run: stepscope.Run, wide: dict[str, float]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {"1 key": [], "1,000 keys": []}
    for number in range(CALLS):
        values, kind = (wide, "1,000 keys") if number % 10 == 0 else ({"loss": 1.0}, "1 key")
        began = time.perf_counter_ns()
        run.log(values, step=number)
        times[kind].append(time.perf_counter_ns() - began)
        if number % 100 == 0:
            time.sleep(0.001)
    return times


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        size = 1024 * 1024
        while size:
            try:
                file.write(os.urandom(size))
            except OSError:
                size //= 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
