"""Survivors: trainers killed by SIGKILL; what they logged 200 ms before must be in the journal."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import IMPORT_PATHS, end_group, environment, scratch

NAME = "survivors"
METHOD = (
    "Each child logs 1,000 steps 2 ms apart and writes to a file when `log` returned; the parent sends "
    "SIGKILL at a random moment of those 2 s. Counted are the children of which every record older than "
    "200 ms when the signal was sent is in the journal; `oldest lost` is the greatest age of any missing "
    "record."
)
STEPS, PAUSE_S, OLD_NS = 1000, 0.002, 200_000_000
_ROW = struct.Struct("<qq")


def measure(options: Options, progress: Progress) -> list[Result]:
    """Kill one child after another."""
    if OURS not in options.subjects:
        return []
    kills = 5 if options.quick else 20
    chance = random.Random()
    outcomes: list[tuple[int, int, float]] = []
    for number in range(kills):
        try:
            lost, old, oldest_ms = _one_kill(chance.uniform(0.3, STEPS * PAUSE_S))
        except (OSError, ImportError, RuntimeError) as error:
            progress(f"survivors: SKIPPED: {error}")
            return [Result(NAME, "SIGKILL", OURS, skipped=str(error))]
        progress(f"survivors: kill {number + 1} of {kills}: {old} old records, {lost} lost")
        outcomes.append((lost, old, oldest_ms))
    stats = {
        "kills": float(kills),
        "kept": float(sum(1 for lost, _, _ in outcomes if not lost)),
        "old_records": float(sum(old for _, old, _ in outcomes)),
        "old_lost": float(sum(lost for lost, _, _ in outcomes)),
        "oldest_lost_ms": max(oldest for _, _, oldest in outcomes),
    }
    return [Result(NAME, "SIGKILL", OURS, stats)]


def _one_kill(after_s: float) -> tuple[int, int, float]:
    """Return how many old records were lost, how many there were, and the oldest missing one's age in ms."""
    with scratch() as folder:
        accepted = folder / "accepted"
        params = json.dumps({"file": str(accepted)})
        line = [sys.executable, "-m", "benchmarks.child", __name__, str(folder / "answer"), params]
        with (folder / "said").open("w+") as said:
            process = subprocess.Popen(
                line, cwd=folder, env=environment(folder), stdout=said, stderr=said, start_new_session=True
            )
            _wait_for_first(accepted, process, folder)
            time.sleep(after_s)
            killed_ns = time.monotonic_ns()
            os.kill(process.pid, signal.SIGKILL)
            end_group(process)
        rows = list(_ROW.iter_unpack(_whole_rows(accepted)))
        kept = _steps_in_journal(folder / "home" / "stepscope")
    missing = [killed_ns - when for step, when in rows if step not in kept]
    old = sum(1 for _, when in rows if killed_ns - when > OLD_NS)
    return sum(1 for age in missing if age > OLD_NS), old, max(missing, default=0) / 1e6


def _wait_for_first(accepted: Path, process: subprocess.Popen[Any], folder: Path) -> None:
    deadline = time.monotonic() + 30
    while not (accepted.exists() and accepted.stat().st_size):
        if process.poll() is not None or time.monotonic() > deadline:
            end_group(process)
            raise RuntimeError((folder / "said").read_text().strip()[-200:] or "the child logged nothing")
        time.sleep(0.005)


def _whole_rows(accepted: Path) -> bytes:
    data = accepted.read_bytes()
    return data[: len(data) - len(data) % _ROW.size]


def _steps_in_journal(home: Path) -> set[int]:
    sys.path.extend(str(path) for path in IMPORT_PATHS if str(path) not in sys.path)
    from stepscope.journal import layout, segments
    from stepscope.model.records import Metric

    steps: set[int] = set()
    for run in layout.list_runs(home):
        for writer in layout.list_writers(home, run):
            for batch in segments.read_writer(layout.writer_folder(home, run, writer)):
                steps.update(
                    int(record.step or 0)
                    for record in batch.records
                    if isinstance(record, Metric) and any("loss" in key for key in record.values)
                )
    return steps


def child(params: dict[str, str]) -> None:
    """Log until done or killed, writing down the moment each call returned."""
    import stepscope

    run = stepscope.init(project="bench", name="doomed", home=os.environ["STEPSCOPE_HOME"], probes=False)
    file = os.open(params["file"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for step in range(1, STEPS + 1):
        run.log({"loss": 1 / step, "lr": 3e-4}, step=step)
        os.write(file, _ROW.pack(step, time.monotonic_ns()))
        time.sleep(PAUSE_S)
    time.sleep(60)  # the signal comes
