"""Print what the diagnosis in the trainer adds to a call of `log`, in processor time of the calling thread."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from statistics import median
from typing import Any

from benchmarks.spawn import fresh
from benchmarks.zoo.cost import TRAINING, rows
from stepscope.model.records import Metric

CALLS = 100
"""Calls of `log` that are timed together."""
PAUSE_SECONDS = 0.02
"""Between them, so that the flusher writes and diagnoses while the loop goes on."""


def child(params: dict[str, Any]) -> dict[str, float]:
    """Record with or without the diagnosis in this process: microseconds a call, and of the process a call."""
    import stepscope

    values = [record.values for _, record in rows(TRAINING, CALLS * params["rounds"]) if isinstance(record, Metric)]
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="stepscope-cost-") as home:
        run = stepscope.init(home=home, diagnosis=params["diagnosis"], probes=False, quiet=True)
        whole = time.process_time()
        for first in range(0, len(values), CALLS):
            begun = time.thread_time()
            for step in range(first, first + CALLS):
                run.log(values[step], step=step)  # type: ignore[arg-type]
            took.append((time.thread_time() - begun) / CALLS * 1e6)
            time.sleep(PAUSE_SECONDS)
        whole = time.process_time() - whole
        run.finish()
    return {"median": median(took), "least": min(took), "process": whole / len(values) * 1e6}


def main() -> None:
    """Measure in turn and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help=f"rounds of {CALLS} calls in each process (60)")
    parser.add_argument("--times", type=int, default=5, help="processes with and without (5)")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(args.times):
        for diagnosis, known in found.items():
            known.append(fresh("benchmarks.zoo.trainer_cost", {"diagnosis": diagnosis, "rounds": args.rounds}))
    for name in ("median", "least", "process"):
        off, on = (min(each[name] for each in known) for known in found.values())
        print(f"{name:<8} us a call: {off:.2f} without, {on:.2f} with the diagnosis, {on - off:+.2f}")


if __name__ == "__main__":
    main()
