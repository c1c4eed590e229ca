"""Delivery in a thread: how long another thread of the trainer waits for its turn while ours works."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import stepscope
from benchmarks.destinations import destination
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh, scratch
from benchmarks.timing import percentile

NAME = "thread"
METHOD = (
    'With `shipper="thread"`, a thread that sleeps for 0.3 ms over and over notes how late it wakes: whoever holds the '
    "interpreter then makes it wait. Counted is no more than the processor time that the delivering thread used "
    "meanwhile, for other programs make it late too. Python's rule that a thread gives way after 5 ms is set to a "
    "second, so that a long stretch of work shows at full length. The loop logs 20 rows every 10 ms, of 1 and of 20 "
    "values, which are delivered meanwhile. Medians over rounds; `slice` is the 99.9th percentile, `share` the part "
    "of a core that delivery takes."
)
CASES = {
    "otlp, 1 value": ("otlp", 1),
    "otlp, 20 values": ("otlp", 20),
    "hub, 1 value": ("hub", 1),
    "hub, 20 values": ("hub", 20),
}
NAP_S = 0.0003


def measure(options: Options, progress: Progress) -> list[Result]:
    """Deliver and listen, several times over."""
    rounds, seconds = (1, 2.0) if options.quick else (3, 3.0)
    results = []
    for case, (kind, width) in CASES.items():
        try:
            with scratch() as folder, destination("takes", folder) as url:
                params = {"kind": kind, "url": url, "width": width, "seconds": seconds}
                rows = []
                for number in range(rounds):
                    progress(f"thread: {case} (round {number + 1} of {rounds})")
                    rows.append(fresh(__name__, params))
            stats = {stat: statistics.median(row[stat] for row in rows) for stat in rows[0]}
            results.append(Result(NAME, case, OURS, stats))
        except ChildError as error:
            results.append(Result(NAME, case, OURS, skipped=str(error)))
    return results


def child(params: dict[str, Any]) -> dict[str, float]:
    """Log, deliver and listen; return milliseconds of lateness."""
    address = {"hub": "url", "otlp": "endpoint"}[params["kind"]]
    run = stepscope.init(
        home=Path(os.getcwd()) / "stepscope",
        sinks=[{params["kind"]: {address: params["url"]}}],
        shipper="thread",
        probes=False,
        capture_logs=False,
        otel=False,
    )
    values = {f"key_{n}": 0.5 + n for n in range(params["width"])}
    _loop(run, values, 1.5)  # imports and connections are over by then
    (delivering,) = (each for each in threading.enumerate() if each.name == f"stepscope-{params['kind']}")
    assert delivering.ident is not None
    clock = time.pthread_getcpuclockid(delivering.ident)
    sys.setswitchinterval(1.0)
    late: list[float] = []
    ended = threading.Event()
    canary = threading.Thread(target=_listen, args=(late, ended, clock))
    used = time.clock_gettime(clock)
    canary.start()
    _loop(run, values, params["seconds"])
    ended.set()
    canary.join()
    return {
        "slice_ms": percentile(late, 99.9),
        "p99_ms": percentile(late, 99),
        "longest_ms": max(late),
        "share": (time.clock_gettime(clock) - used) / params["seconds"],
    }


def _loop(run: Any, values: dict[str, float], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(20):
            run.log(values, category="trainer")
        time.sleep(0.01)


def _listen(late: list[float], ended: threading.Event, clock: int) -> None:
    with contextlib.suppress(OSError):  # where it may, it goes before others, so that it waits for nobody but us
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
    while not ended.is_set():
        began, used = time.perf_counter(), time.clock_gettime(clock)
        time.sleep(NAP_S)
        lateness = time.perf_counter() - began - NAP_S
        late.append(min(lateness, time.clock_gettime(clock) - used) * 1e3)
