"""Call cost: what `log` with 5, 10 and 1,000 metrics and a span with 5 attributes take in the caller."""

from __future__ import annotations

import itertools
import os
import random
import time
from typing import Any

from benchmarks.results import NO_SUCH_CALL, Options, Progress, Result, best
from benchmarks.spawn import ChildError, fresh
from benchmarks.subjects import open_subject
from benchmarks.timing import Call, burst, clock_cost_ns, paced

NAME = "call"
METHOD = (
    "Each SDK in a fresh interpreter, fresh dicts of floats. Burst: 1,000 calls (100 of `log(1000)`) at "
    "full speed, cut short after 0.6 s, then 0.3 s of rest. Paced: one call every 2 ms (10 ms for "
    "`log(1000)`). Net of the clock; the lowest round of all, each SDK visited in turn, several times "
    "over. Budgets are judged on bursts."
)
REST_S = 0.3
CASES = {"log(5)": 5, "log(10)": 10, "log(1000)": 1000, "span(5)": 0}


def measure(options: Options, progress: Progress) -> list[Result]:
    """Visit every subject in every case, several sweeps over, and keep the best round of each."""
    sweeps, rounds = (1, 2) if options.quick else (2, 2)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    trouble: dict[tuple[str, str], str] = {}
    for sweep in range(sweeps):
        for case, subject in itertools.product(CASES, options.subjects):
            if trouble.get((case, subject)) == NO_SUCH_CALL:
                continue
            progress(f"call: {case} {subject} (sweep {sweep + 1} of {sweeps})")
            try:
                rows = fresh(__name__, {"subject": subject, "case": case, "rounds": rounds})
            except ChildError as error:
                trouble[case, subject] = str(error)
                progress(f"call: {case} {subject} FAILED: {error}")
                continue
            if rows:
                found.setdefault((case, subject), []).extend(rows)
            else:
                trouble[case, subject] = NO_SUCH_CALL
    done = [Result(NAME, case, subject, best(rows)) for (case, subject), rows in found.items()]
    missing = {pair: why for pair, why in trouble.items() if pair not in found}
    return done + [Result(NAME, case, subject, skipped=why) for (case, subject), why in missing.items()]


def child(params: dict[str, Any]) -> list[dict[str, float]]:
    """Return one row per round: burst and paced microseconds."""
    size = CASES[params["case"]]
    wide = size >= 1000
    count = 100 if wide else 1000
    subject = open_subject(params["subject"], os.getcwd())
    call = subject.log if size else subject.span
    if call is None:
        return []
    ready, idle = _ready(call, size, count)
    empty = clock_cost_ns(idle)
    burst(ready, count // 10, limit_s=1.0, empty_ns=empty)
    rows = []
    for _ in range(params["rounds"]):
        time.sleep(REST_S)
        row = burst(ready, count, limit_s=0.6, empty_ns=empty)
        time.sleep(REST_S)
        pause = 0.01 if wide else 0.002
        slow = paced(ready, count // 4, pause_s=pause, limit_s=1.0, empty_ns=empty)
        rows.append(row | {f"paced_{name}": value for name, value in slow.items()})
    return rows


def _ready(call: Any, size: int, count: int) -> tuple[Call, Call]:
    """Return the call to time, and the same line of code without the call."""
    if not size:
        return lambda index: call(), lambda index: None
    keys = [f"trainer/layer_{n}" for n in range(size)]
    held = [{key: random.random() for key in keys} for _ in range(min(count, 200))]
    wrap = len(held)
    steps = itertools.count()  # never goes back: some peers throw away a step below the last one
    return (
        lambda index: call(held[index % wrap], step=next(steps)),
        lambda index: (held[index % wrap], next(steps)),
    )
