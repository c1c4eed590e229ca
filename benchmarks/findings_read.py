"""How long a hub takes to answer what went wrong in a run of ten million points."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median

from benchmarks import hub_journals as journals
from benchmarks.hub_process import HubProcess
from benchmarks.spawn import scratch

RANKS = 8
RUN = "big"


def asked(hub: HubProcess, path: str, times: int = 20) -> str:
    """The median and the longest answer in ms, and the processor time of the hub for one."""
    took, used = [], hub.cpu_s()
    for _ in range(times):
        begun = time.perf_counter()
        hub.get(path)
        took.append((time.perf_counter() - begun) * 1e3)
    cpu = (hub.cpu_s() - used) / times * 1e3
    return f"{median(took):6.1f} ms, longest {max(took):6.1f} ms, processor time {cpu:.1f} ms"


def main() -> None:
    """Fill a hub, ask while the run is diagnosed and after, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds to wait for the diagnosis (1800)")
    args = parser.parse_args()
    with scratch() as folder:
        records = journals.write_metrics(folder / "staging", RUN, RANKS, args.points // RANKS // len(journals.KEYS))
        print(f"{records * len(journals.KEYS):,} points, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        hub = HubProcess(folder)
        try:
            _measure(hub, folder / "staging", records, args.limit)
        finally:
            hub.close()


def _measure(hub: HubProcess, staging: Path, records: int, limit: float) -> None:
    path = f"/api/runs/{RUN}/findings"
    (hub.home / "runs").rmdir() if (hub.home / "runs").exists() else None
    (staging / "runs").rename(hub.home / "runs")
    begun = time.monotonic()
    early = False
    while (stored := hub.stored("folder")) < records:
        early |= stored > 0 and _is_complete(hub, path)
        time.sleep(0.5)
    print(f"stored after {time.monotonic() - begun:.0f} s; said to be complete before: {'YES' if early else 'no'}")
    print(f"while it is diagnosed  {asked(hub, path)}")
    while not _is_complete(hub, path) and time.monotonic() - begun < limit:
        time.sleep(1.0)
    answer = hub.get(path)
    kinds = ", ".join(each["kind"] for each in answer["findings"]) or "none"
    print(f"diagnosed to {answer['progress']:.0%} after {time.monotonic() - begun:.0f} s, findings: {kinds}")
    print(f"diagnosed              {asked(hub, path)}")


def _is_complete(hub: HubProcess, path: str) -> bool:
    try:
        return bool(hub.get(path)["complete"])
    except Exception:  # the run is not stored yet
        return False


if __name__ == "__main__":
    main()
