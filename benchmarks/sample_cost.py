"""What samples add to a step: seconds of the loop's own thread, of the flusher, and of the whole step beside others."""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import stepscope

_PROSE = (
    "the answer is a token of the key idea that each step of this proof has to pass and then we sum over all n because "
    "the total cost per unit is 12.5 and not 7 so x = 3 therefore f(x) returns true in the second case of the table"
)
WORDS = _PROSE.split()


def texts(count: int, size: int) -> list[str]:
    """Prose of so many characters each, none twice."""
    chance = random.Random(1)
    made = []
    for _ in range(count):
        words: list[str] = []
        while sum(map(len, words)) + len(words) < size:
            words.append(chance.choice(WORDS))
        made.append(" ".join(words)[:size])
    return made


def work(seconds: float) -> None:
    """Compute in Python, as a loop that holds the interpreter does: what threads of ours take shows in the step."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(200))


def steps(run: Any, given: list[str], count: int, seconds: float, busy: bool) -> tuple[list[float], list[float]]:
    """Run steps and return how long each took beyond its work, and the time in the calls."""
    over, calls = [], []
    for step in range(count):
        began = time.perf_counter()
        with run.step(step):
            called = time.thread_time()
            for at, text in enumerate(given):
                run.sample(prompt=f"question {at} of step {step}", completion=text, reward=0.5, finish_reason="stop")
            calls.append(time.thread_time() - called)
            work(seconds) if busy else time.sleep(seconds)
        over.append(time.perf_counter() - began - seconds)
    return over, calls


def measure(samples: int, size: int, count: int, seconds: float, busy: bool) -> dict[str, float]:
    """Measure one case in a run of its own."""
    with tempfile.TemporaryDirectory() as home:
        run = stepscope.init(home=Path(home), probes=False, otel=False, quiet=True, disk_quota="8 GiB")
        given = texts(samples, size)
        steps(run, given, 20, seconds, busy)
        cpu, own = time.process_time(), time.thread_time()
        over, calls = steps(run, given, count, seconds, busy)
        others = (time.process_time() - cpu) - (time.thread_time() - own)
        done = run.finish(timeout=60)
        assert done.recorded
        assert not done.dropped
        return {
            "calls_ms": 1e3 * statistics.median(calls),
            "step_ms": 1e3 * statistics.median(over),
            "threads_ms": 1e3 * others / count,
        }


def main() -> None:
    """Measure with and without samples, by turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for busy in (False, True):
        found: dict[int, list[dict[str, float]]] = {0: [], args.samples: []}
        for _ in range(args.rounds):
            for samples, results in found.items():
                results.append(measure(samples, args.size, args.steps, args.step_ms / 1e3, busy))
        for samples, results in found.items():
            medians = {name: round(statistics.median([each[name] for each in results]), 3) for name in results[0]}
            print(json.dumps({"work": "python" if busy else "elsewhere", "samples": samples, **medians}))


if __name__ == "__main__":
    main()
