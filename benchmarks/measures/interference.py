"""Interference: how much a loop of GIL-releasing operations slows down under 100 records per step."""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path
from typing import Any

from benchmarks.measures.training_loop import RECORDS_PER_STEP, STEP_MS, calibrate
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, Conversation, scratch

NAME = "interference"
METHOD = (
    f"A step of about {STEP_MS} ms is a row of PBKDF2 calls, which release the GIL and touch no memory, of "
    f"the stated length; {RECORDS_PER_STEP} records are logged per step, spread evenly (90 `log` of two "
    "metrics, 10 spans). One process without any SDK, a second such process as control, and one per SDK "
    "take turns, a round each, nobody else running meanwhile; a round is 4 steps of warm-up and 20 "
    "measured. Shown is the median over rounds of the ratio to the process without SDK in the same round. "
    "The true difference of the control is nothing: rounds go on, 15 at least and 45 at most, until the "
    "control's is within half of the budget, and what it then shows is the noise of the machine. Peers "
    "are measured apart, 5 rounds at one length."
)
OPERATIONS_MS = (0.05, 0.5, 2.3)
NONE, CONTROL = "no SDK", "control"
PEERS_AT_MS, PEERS = 0.5, ("trackio", "wandb", "mlflow async", "otel")
CALM = {"mean_pct": 0.5, "p99_pct": 2.5}
Rows = dict[str, list[dict[str, float]]]


def measure(options: Options, progress: Progress) -> list[Result]:
    """Run the loop for each operation length with the processes taking turns."""
    least, most = (4, 8) if options.quick else (15, 45)
    results = []
    if OURS in options.subjects:
        for length in OPERATIONS_MS:
            results += _one_length(length, [NONE, CONTROL, OURS], (least, most), progress)
    if peers := [name for name in PEERS if name in options.subjects]:
        rows = _one_length(PEERS_AT_MS, [NONE, CONTROL, *peers], (2, 2) if options.quick else (5, 5), progress)
        results += [row for row in rows if row.subject in peers]
    return results


def _one_length(length: float, names: list[str], rounds: tuple[int, int], progress: Progress) -> list[Result]:
    case = f"operations of {length} ms"
    shape = calibrate(length)
    taken: Rows = {name: [] for name in names}
    skipped: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        folders = {name: Path(stack.enter_context(scratch())) for name in names}
        talks = {name: _start(name, shape, folders[name]) for name in names}
        for talk in talks.values():
            stack.callback(talk.close)
        for turn in range(rounds[1] + 1):
            for name in _rotated(names, turn):
                if name in skipped:
                    continue
                try:
                    row = talks[name].ask({"warm": 4, "steps": 20})
                except ChildError as error:
                    skipped[name] = str(error)
                    progress(f"interference: {name} SKIPPED: {error}")
                    continue
                if turn:
                    taken[name].append(row)
            progress(f"interference: {case}, round {turn} of {rounds[0]} to {rounds[1]}{_seen(taken)}")
            if turn >= rounds[0] and _calm(taken):
                break
    done = [
        Result(NAME, case, name, _against(rows, taken[NONE])) for name, rows in taken.items() if name not in skipped
    ]
    return done + [Result(NAME, case, name, skipped=why) for name, why in skipped.items()]


def _calm(taken: Rows) -> bool:
    """Tell whether the control differs little enough from what it is a copy of."""
    noise = _against(taken[CONTROL], taken[NONE])
    return all(abs(noise[stat]) <= bound for stat, bound in CALM.items())


def _seen(taken: Rows) -> str:
    if not taken[CONTROL]:
        return ""
    noise = _against(taken[CONTROL], taken[NONE])
    return f" (noise: mean {noise['mean_pct']:+.2f} %, p99 {noise['p99_pct']:+.2f} %)"


def _start(name: str, shape: dict[str, int], folder: Path) -> Conversation:
    subject = "" if name in (NONE, CONTROL) else name
    return Conversation("benchmarks.measures.training_loop", {"subject": subject, **shape}, folder)


def _rotated(names: list[str], turn: int) -> list[str]:
    shift = turn % len(names)
    return names[shift:] + names[:shift]


def _against(rows: list[dict[str, float]], alone: list[dict[str, float]]) -> dict[str, float]:
    def change(stat: str) -> float:
        pairs: list[Any] = list(zip(rows, alone, strict=True))
        return (statistics.median(row[stat] / other[stat] for row, other in pairs) - 1) * 100

    return {
        "rounds": float(len(rows)),
        "step_ms": statistics.median(row["step_mean_ms"] for row in rows),
        "mean_pct": change("step_mean_ms"),
        "p99_pct": change("op_p99_ms"),
        "cpu_pct": change("cpu_s"),
        "op_p50_pct": change("op_p50_ms"),
        "op_p99_ms": statistics.median(row["op_p99_ms"] for row in rows),
        "step_p95_ms": statistics.median(row["step_p95_ms"] for row in rows),
    }
