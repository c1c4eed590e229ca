"""The loop interference is measured in: steps of GIL-releasing operations with records in between."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.results import OURS
from benchmarks.subjects import Subject, open_subject
from benchmarks.timing import percentile

STEP_MS = 50
RECORDS_PER_STEP = 100
SPAN_EVERY = 10
Record = Callable[[int], None]
Schedule = list[Record | None]
"""For each operation of a step, what is recorded after it."""


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


class Loop:
    """Steps with or without records; ours is opened and finished around each turn, a peer stays open."""

    def __init__(self, subject: str, iterations: int, operations: int, groups: int) -> None:
        self._name = subject
        self._iterations = iterations
        self._shape = operations, groups
        self._silent: Schedule = [None] * operations
        self._open: Subject | None = None
        self._passed = 0

    def turn(self, question: dict[str, Any]) -> dict[str, float]:
        """Take some steps and return what they took."""
        schedule = self._begin() if question["on"] else self._silent
        self._steps(schedule, question["warm"])
        spent = time.process_time()
        rows = self._steps(schedule, question["steps"])
        spent = time.process_time() - spent
        if self._name == OURS and self._open is not None:
            self._open.close()
            self._open = None
        operations = [ns / 1e6 for _, taken in rows for ns in taken]
        steps = [ns / 1e6 for ns, _ in rows]
        return {
            "cpu_s": spent,
            "step_mean_ms": statistics.fmean(steps),
            "step_p95_ms": percentile(steps, 95),
            "op_p50_ms": percentile(operations, 50),
            "op_p99_ms": percentile(operations, 99),
        }

    def _begin(self) -> Schedule:
        if self._open is None:
            self._open = open_subject(self._name, os.getcwd())
        return _schedule(*self._shape, self._open)

    def _steps(self, schedule: Schedule, count: int) -> list[tuple[int, list[int]]]:
        rows = []
        for _ in range(count):
            self._passed += 1
            rows.append(_step(self._iterations, schedule, self._passed))
        return rows


def child(params: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, float]]:
    """Return what answers a turn."""
    return Loop(**params).turn


def _step(iterations: int, schedule: Schedule, number: int) -> tuple[int, list[int]]:
    """Return the nanoseconds of the whole step and of each of its operations."""
    now = time.perf_counter_ns
    taken: list[int] = []
    begin = now()
    for record in schedule:
        start = now()
        operation(iterations)
        taken.append(now() - start)
        if record is not None:
            record(number)
    return now() - begin, taken


def _schedule(operations: int, groups: int, subject: Subject) -> Schedule:
    """Spread a step's records over its operations in `groups` equal groups."""
    due: Schedule = [None] * operations
    size = RECORDS_PER_STEP // groups
    for group in range(groups):
        due[group * operations // groups] = _group(subject, range(group * size, (group + 1) * size))
    return due


def _group(subject: Subject, indices: range) -> Record:
    """What a user would write after a phase of the step."""
    span, log = subject.span, subject.log
    assert log is not None

    def record(number: int) -> None:
        for index in indices:
            if index % SPAN_EVERY == 0 and span is not None:
                span()
            else:
                log({"loss": index / number, "lr": 3e-4}, step=number)

    return record
