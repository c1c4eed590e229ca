"""Print what the diagnosis costs: microseconds for each value or span, and bytes for each series."""

import argparse
import math
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model import names
from stepscope.model.records import Metric, Record, Span, Value

TRAINING = ("loss", "lr", "grad_norm", "train/accuracy", "tokens_per_second")
POLICY = ("approx_kl", "entropy", "clip_fraction", "explained_variance", "reward_mean", "policy_loss", "value_loss")
OTHERS = 95
"""Metrics without a role beside those of training, as in a run that records statistics of each layer."""
LEVELS = {"lr": 0.0, "loss": 2.0, "tokens_per_second": 5e4}
SECOND = 1_000_000_000

Rows = Iterator[tuple[int, Record]]


def _value(rng: random.Random, key: str, step: int) -> float:
    if key == "lr":
        return 1e-3 * (0.55 + 0.45 * math.cos(step / 3000))
    course = 0.5 + 1 / math.sqrt(1 + step / 50)
    return LEVELS.get(key, 0.5) * course * math.exp(rng.gauss(0, 0.03))


def rows(keys: tuple[str, ...], steps: int) -> Rows:
    """Metrics of one rank, all in one record for each step."""
    rng = random.Random(1)
    for step in range(steps):
        values: dict[str, Value] = {key: _value(rng, key, step) for key in keys}
        yield 0, Metric(step * SECOND, step, None, None, values)


def spans(steps: int, world: int) -> Rows:
    """Four spans and their root in each step of each rank."""
    rng = random.Random(2)
    for step in range(steps):
        for rank in range(world):
            now, trace, root = step * SECOND, rng.randbytes(16), rng.randbytes(8)
            for name in ("train.data_load", "train.forward", "train.backward", "train.optimizer_step"):
                took = int(1e8 * math.exp(rng.gauss(0, 0.05)))
                yield rank, Span(now, took, step, None, trace, rng.randbytes(8), root, name)
                now += took
            begun = step * SECOND
            yield rank, Span(begun, now - begun, step, None, trace, root, None, names.SPAN_STEP)


def many(series: int, steps: int) -> Rows:
    """A run with so many series: one in twenty has a role."""
    keys = TRAINING + tuple(f"layers.{at}/activation_mean" for at in range(OTHERS))
    rng = random.Random(3)
    for step in range(steps):
        for rank in range(series // len(keys)):
            values: dict[str, Value] = {key: _value(rng, key, step) for key in keys}
            yield rank, Metric(step * SECOND, step, None, None, values)


def seconds_for(made: list[tuple[int, Record]], world: int = 1) -> float:
    """The processor time the diagnosis needs for these records."""
    diagnosis = Diagnosis(world=world)
    begun = time.process_time()
    for rank, record in made:
        diagnosis.feed(rank, record)
    return time.process_time() - begun


def microseconds(make: Callable[[], Rows], points: int, world: int = 1) -> float:
    """The least of three measurements for one value or span."""
    made = list(make())
    return min(seconds_for(made, world) for _ in range(3)) / points * 1e6


def bytes_per_series(series: int, steps: int) -> float:
    """What the state of each of so many series takes, once it has reached its bound."""
    made = list(many(series, 1))
    tracemalloc.start()
    diagnosis = Diagnosis(world=series // (OTHERS + len(TRAINING)))
    for step in range(steps):
        for rank, record in made:
            assert isinstance(record, Metric)
            change = 1 + 0.001 * (step * 7919 % 97)
            values: dict[str, Value] = {key: change * (at + 1.0) for at, key in enumerate(record.values)}
            diagnosis.feed(rank, Metric(step * SECOND, step, None, None, values))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / series


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--series", type=int, default=10_000)
    args = parser.parse_args()
    steps = args.steps
    roleless = tuple(f"layers.{at}/activation_mean" for at in range(40))
    for name, make, points, world in (
        ("training metrics", lambda: rows(TRAINING, steps), steps * len(TRAINING), 1),
        ("policy metrics", lambda: rows(POLICY, steps), steps * len(POLICY), 1),
        ("metrics without a role", lambda: rows(roleless, steps), steps * len(roleless), 1),
        (f"{args.series} series of one run", lambda: many(args.series, 40), args.series * 40, args.series // 100),
        ("spans", lambda: spans(steps, 1), steps * 5, 1),
        ("spans of 8 ranks", lambda: spans(steps // 4, 8), steps // 4 * 40, 8),
    ):
        print(f"{microseconds(make, points, world):8.2f} us  {name}")
    print(f"{bytes_per_series(args.series, 150):8.0f} bytes for each of {args.series} series")


if __name__ == "__main__":
    main()
