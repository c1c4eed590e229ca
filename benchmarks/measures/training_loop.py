"""The loop interference is measured in: steps of GIL-releasing operations with records in between."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.subjects import Subject, open_subject
from benchmarks.timing import percentile

STEP_MS = 50
RECORDS_PER_STEP = 100
SPAN_EVERY = 10


def operation(iterations: int) -> None:
    """Spend a time proportional to `iterations` in C with the GIL released."""
    hashlib.pbkdf2_hmac("sha256", b"stepscope", b"salt", iterations)


def calibrate(length_ms: float) -> dict[str, int]:
    """Return how many iterations make an operation of `length_ms`, and how many of those make a step."""
    iterations = 100
    for _ in range(4):
        iterations = max(1, round(iterations * length_ms / _best_ms(iterations)))
    return {"iterations": iterations, "operations": max(1, round(STEP_MS / length_ms))}


def _best_ms(iterations: int) -> float:
    taken = []
    for _ in range(30):
        start = time.perf_counter()
        operation(iterations)
        taken.append((time.perf_counter() - start) * 1e3)
    return min(taken)


def child(params: dict[str, Any]) -> Callable[[dict[str, int]], dict[str, float]]:
    """Open the subject, if any, and return what answers a round."""
    subject = open_subject(params["subject"], os.getcwd()) if params["subject"] else None
    schedule = _schedule(params["operations"], subject)
    passed = 0

    def round_of(question: dict[str, int]) -> dict[str, float]:
        nonlocal passed
        for _ in range(question["warm"]):
            passed += 1
            _step(params["iterations"], schedule, passed)
        rows = []
        spent = time.process_time()
        for _ in range(question["steps"]):
            passed += 1
            rows.append(_step(params["iterations"], schedule, passed))
        spent = time.process_time() - spent
        operations = [ns / 1e6 for _, taken in rows for ns in taken]
        steps = [ns / 1e6 for ns, _ in rows]
        return {
            "cpu_s": spent,
            "step_mean_ms": statistics.fmean(steps),
            "step_p95_ms": percentile(steps, 95),
            "op_p50_ms": percentile(operations, 50),
            "op_p99_ms": percentile(operations, 99),
        }

    return round_of


def _step(iterations: int, schedule: list[list[Callable[[int], None]]], number: int) -> tuple[int, list[int]]:
    """Return the nanoseconds of the whole step and of each of its operations."""
    now = time.perf_counter_ns
    taken: list[int] = []
    begin = now()
    for due in schedule:
        start = now()
        operation(iterations)
        taken.append(now() - start)
        for record in due:
            record(number)
    return now() - begin, taken


def _schedule(operations: int, subject: Subject | None) -> list[list[Callable[[int], None]]]:
    """Spread a step's records evenly over its operations."""
    due: list[list[Callable[[int], None]]] = [[] for _ in range(operations)]
    if subject is not None:
        for index in range(RECORDS_PER_STEP):
            due[index * operations // RECORDS_PER_STEP].append(_record(subject, index))
    return due


def _record(subject: Subject, index: int) -> Callable[[int], None]:
    span, log = subject.span, subject.log
    if index % SPAN_EVERY == 0 and span is not None:
        return lambda number: (span(), None)[1]
    assert log is not None
    return lambda number: (log({"loss": index / number, "lr": 3e-4}, step=number), None)[1]
