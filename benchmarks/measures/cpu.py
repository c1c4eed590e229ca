"""Processor time: seconds of all threads and child processes per record, the background work included."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from benchmarks.process import tree_cpu_s, wait_until_idle
from benchmarks.results import Options, Progress, Result, best
from benchmarks.spawn import ChildError, fresh
from benchmarks.subjects import open_subject

NAME = "cpu"
METHOD = (
    "`log(5)` in groups of 50 calls, 10 ms apart, 20,000 records, cut short after 4 s; user and system "
    "time of the process with all its threads, and of processes it started, from the first call until the "
    "process has come to rest, minus the same loop without the call. Lowest of the rounds."
)


def measure(options: Options, progress: Progress) -> list[Result]:
    """Visit every subject in turn, several times over."""
    rounds = 1 if options.quick else 2
    taken: dict[str, list[dict[str, float]]] = {}
    skipped: dict[str, str] = {}
    for turn in range(rounds):
        for subject in options.subjects:
            if subject in skipped:
                continue
            progress(f"cpu: {subject} (round {turn + 1} of {rounds})")
            try:
                taken.setdefault(subject, []).append(fresh(__name__, {"subject": subject, "records": 20_000}))
            except ChildError as error:
                skipped[subject] = str(error)
                progress(f"cpu: {subject} SKIPPED: {error}")
    done = [Result(NAME, "log(5)", subject, best(rows)) for subject, rows in taken.items() if rows]
    return done + [Result(NAME, "log(5)", subject, skipped=why) for subject, why in skipped.items()]


def child(params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds of processor time per record."""
    log = open_subject(params["subject"], os.getcwd()).log
    assert log is not None
    keys = [f"trainer/metric_{n}" for n in range(5)]
    held = [{key: random.random() for key in keys} for _ in range(100)]
    log(held[0], step=0)
    wait_until_idle(10)
    idle_each = _loop(lambda metrics, step: None, held, params["records"], rest_s=1)[0]
    each, calls = _loop(log, held, params["records"], rest_s=30)
    return {"cpu_us": max(each - idle_each, 0.0), "records": float(calls)}


def _loop(log: Any, held: list[dict[str, float]], records: int, rest_s: float) -> tuple[float, int]:
    """Return processor microseconds per call, the background's work included, and the number of calls."""
    before = tree_cpu_s()
    deadline = time.monotonic() + 4
    calls = 0
    while calls < records and time.monotonic() < deadline:
        for _ in range(50):
            calls += 1
            log(held[calls % 100], step=calls)
        time.sleep(0.01)
    wait_until_idle(rest_s)
    return (tree_cpu_s() - before) * 1e6 / calls, calls
