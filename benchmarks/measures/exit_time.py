"""Exit time: how long a program takes to end, beyond its bound, with every destination in trouble."""

from __future__ import annotations

import itertools
import json
import os
import sys
import textwrap
import time
from pathlib import Path

from benchmarks.destinations import FAULTS, destination, end_shipper
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import execute, last_words, scratch

NAME = "exit"
METHOD = (
    "A program with OTLP over HTTP, OTLP over gRPC and a hub as sinks, all three at an address that is in the trouble "
    "named, logs 2,000 rows and ends. Measured from the call of `finish` to the end of the process, the interpreter's "
    "own end included; `exit_timeout` is 1 s. Delivery by a shipper process, and by a thread of the program. One "
    "that took more than 0.3 s beyond its bound is tried up to three times, and the shortest counts. A shipper that is "
    "left behind goes on trying, and is killed."
)
BOUND_S = 1.0
MAX_ROUNDS, CLEAR_S = 3, 0.3
"""A fault is tried again when the program took longer than this beyond its bound: the machine may have been busy."""
WAYS = ("process", "thread")
PROGRAM = textwrap.dedent(
    """
    import sys, time, stepscope
    run = stepscope.init(capture_logs=False, otel=False, probes=False)
    for step in range(2000):
        run.log({"loss": 0.5}, step=step, category="trainer")
    run.flush()
    time.sleep(0.3)
    open(sys.argv[1], "w").write(str(time.monotonic()))
    run.finish()
    """
)


def measure(options: Options, progress: Progress) -> list[Result]:
    """Try every fault both ways; the last row is the worst."""
    took: dict[tuple[str, str], float] = {}
    for fault, way in itertools.product(FAULTS, WAYS):
        for _ in range(1 if options.quick else MAX_ROUNDS):
            progress(f"exit: {fault}, {way}")
            with scratch() as folder, destination(fault, folder) as address:
                found = _once(folder, address, way)
            took[fault, way] = min(found, took.get((fault, way), found))
            if took[fault, way] <= BOUND_S + CLEAR_S:
                break
    results = [Result(NAME, fault, OURS, {f"{way}_s": took[fault, way] for way in WAYS}) for fault in FAULTS]
    worst = {f"{way}_s": max(took[fault, way] for fault in FAULTS) for way in WAYS}
    return [*results, Result(NAME, "worst", OURS, {**worst, "over_s": max(worst.values()) - BOUND_S})]


def _once(folder: Path, address: str, way: str) -> float:
    sinks = [
        {"otlp": {"endpoint": address}},
        {"otlp": {"endpoint": address, "protocol": "grpc"}},
        {"hub": {"url": address}},
    ]
    home = folder / "stepscope"
    env = {
        "STEPSCOPE_SINKS": json.dumps(sinks),
        "STEPSCOPE_SHIPPER": way,
        "STEPSCOPE_EXIT_TIMEOUT": str(BOUND_S),
        "STEPSCOPE_HOME": str(home),
    }
    note = folder / "finishing"
    try:
        code, said = execute([sys.executable, "-c", PROGRAM, str(note)], folder, 60, env)
        took = time.monotonic() - float(note.read_text())
    finally:
        end_shipper(home)
    if code != 0:
        raise OSError(f"the program ended with {code}: {last_words(said)}{os.linesep}")
    return took
