"""Memory: how far resident memory climbs while a million values are logged."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from benchmarks.process import tree_rss_bytes, wait_until_idle
from benchmarks.results import Options, Progress, Result
from benchmarks.spawn import ChildError, fresh
from benchmarks.subjects import open_subject

NAME = "memory"
METHOD = (
    "10,000 calls of `log` with 100 fresh floats each, 1 ms apart, cut short after 12 s. Growth of the "
    "resident memory of the process and those it started, from after the first 20 calls to the highest of "
    "the samples taken every 200 calls, and to where it rests afterwards. `values` is how many got in."
)
WIDTH = 100
CASE = "log(100)"


def measure(options: Options, progress: Progress) -> list[Result]:
    """Log a million values (a tenth in a quick run) into each subject."""
    calls, limit_s = (1_000, 5) if options.quick else (10_000, 12)
    results = []
    for subject in options.subjects:
        progress(f"memory: {subject}")
        try:
            stats = fresh(__name__, {"subject": subject, "calls": calls, "limit_s": limit_s})
            results.append(Result(NAME, CASE, subject, stats))
        except ChildError as error:
            progress(f"memory: {subject} SKIPPED: {error}")
            results.append(Result(NAME, CASE, subject, skipped=str(error)))
    return results


def child(params: dict[str, Any]) -> dict[str, float]:
    """Log, sample, rest, and return megabytes."""
    log = open_subject(params["subject"], os.getcwd()).log
    assert log is not None
    keys = [f"trainer/layer_{n}" for n in range(WIDTH)]
    for step in range(20):
        log({key: random.random() for key in keys}, step=step)
    wait_until_idle(3)
    start = peak = tree_rss_bytes()
    deadline = time.monotonic() + params["limit_s"]
    done = 0
    while done < params["calls"] and time.monotonic() < deadline:
        log({key: random.random() for key in keys}, step=20 + done)
        time.sleep(0.001)
        done += 1
        if done % 200 == 0:
            peak = max(peak, tree_rss_bytes())
    wait_until_idle(3)
    rest = tree_rss_bytes()
    return {
        "peak_mb": (max(peak, rest) - start) / 1e6,
        "rest_mb": (rest - start) / 1e6,
        "values": float(done * WIDTH),
    }
