"""Sinks in the trainer: what a call of `log` costs with none, one and five destinations, alive and dead."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from pathlib import Path
from typing import Any

import stepscope
from benchmarks.destinations import destination, end_shipper
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh, scratch
from benchmarks.timing import burst, clock_cost_ns

NAME = "sinks"
METHOD = (
    "`log` of five floats, 3,000 calls in a burst, in runs that follow each other in one process: without a sink, with "
    "the sinks of the case, and without again as control, in changing order. The sinks are OTLP servers, one address "
    "each, that take everything or that refuse the connection; a shipper process is at work on them from before the "
    "burst to after it. Shown is the median over rounds of the ratio to the run without a sink beside it; what the "
    "control shows is noise."
)
CASES = {"1 alive": (1, "takes"), "5 alive": (5, "takes"), "1 dead": (1, "refused"), "5 dead": (5, "refused")}
CALLS = 3000
NONE, CASE, CONTROL = "none", "case", "control"


def measure(options: Options, progress: Progress) -> list[Result]:
    """Take the rounds of each case in processes of their own, in turn."""
    processes, rounds = (1, 3) if options.quick else (2, 6)
    taken: dict[str, dict[str, list[dict[str, float]]]] = {case: {} for case in CASES}
    trouble: dict[str, str] = {}
    for number in range(processes):
        for case, (count, kind) in CASES.items():
            progress(f"sinks: {case} (process {number + 1} of {processes})")
            try:
                with contextlib.ExitStack() as undo:
                    folder = undo.enter_context(scratch())
                    urls = [undo.enter_context(destination(kind, folder)) for _ in range(count)]
                    rows = fresh(__name__, {"urls": urls, "rounds": rounds})
            except ChildError as error:
                trouble[case] = str(error)
                progress(f"sinks: {case} FAILED: {error}")
                continue
            for turn, found in rows.items():
                taken[case].setdefault(turn, []).extend(found)
    done = [Result(NAME, case, OURS, _summary(rows)) for case, rows in taken.items() if rows]
    return done + [Result(NAME, case, OURS, skipped=why) for case, why in trouble.items() if not taken[case]]


def _summary(rows: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    def times(turn: str, stat: str) -> float:
        return statistics.median(
            row[stat] / none[stat] for row, none in zip(rows[turn], rows[NONE], strict=True) if none[stat]
        )

    return {
        "none_us": statistics.median(row["p50_us"] for row in rows[NONE]),
        "p50_us": statistics.median(row["p50_us"] for row in rows[CASE]),
        "times_none": times(CASE, "p50_us"),
        "mean_times_none": times(CASE, "mean_us"),
        "control": times(CONTROL, "p50_us"),
        "rounds": float(len(rows[NONE])),
    }


def child(params: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """Return rows of microseconds per turn."""
    home = Path(os.getcwd()) / "stepscope"
    rows: dict[str, list[dict[str, float]]] = {NONE: [], CASE: [], CONTROL: []}
    sinks = [{"otlp": {"endpoint": url}} for url in params["urls"]]
    empty = clock_cost_ns(lambda index: (index, _VALUES))
    try:
        for number in range(params["rounds"] + 1):
            shift = number % 3
            for turn in ((NONE, CASE, CONTROL) * 2)[shift : shift + 3]:
                row = _one(home, sinks if turn == CASE else [], empty)
                if number:
                    rows[turn].append(row)
    finally:
        end_shipper(home)
    return rows


_VALUES = {f"trainer/metric_{n}": 0.5 + n for n in range(5)}


def _one(home: Path, sinks: list[Any], empty: float) -> dict[str, float]:
    run = stepscope.init(project="bench", home=home, sinks=sinks or None, probes=False, capture_logs=False, otel=False)
    log = run.log
    try:
        for index in range(500):
            log(_VALUES, step=index)
        run.flush()
        time.sleep(0.4)  # the shipper, where there is one, is at work by then
        return burst(lambda index: log(_VALUES, step=index), CALLS, limit_s=2.0, empty_ns=empty)
    finally:
        run.finish()
