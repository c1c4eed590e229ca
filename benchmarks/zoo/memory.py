"""Print the memory of the diagnosis: against the length of a run, against its series, and for hostile records."""

import argparse
import gc
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from msgspec import Struct

from benchmarks.zoo.cost import POLICY, SECOND, TRAINING
from stepscope.alerts.evaluator import Evaluator
from stepscope.alerts.rule_file import with_packs
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span, Value

LENGTHS = (10_000, 100_000, 1_000_000, 10_000_000)
SERIES = (100, 1_000, 10_000, 100_000)
NOT_STATE = (type, ModuleType, FunctionType, BuiltinFunctionType)

Rows = Iterator[tuple[int, Record]]


def size_of(*roots: object) -> int:
    """Return the bytes of everything that objects refer to, without classes, modules and functions."""
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, NOT_STATE):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        if isinstance(found, Struct):  # records are not tracked by the garbage collector
            waiting += [getattr(found, name) for name in found.__struct_fields__]
        else:
            waiting += gc.get_referents(found)
    return total


def _spans(rng: random.Random, step: int, rank: int, name: str, status: int = 0, message: str = "") -> Rows:
    now, trace, root = step * SECOND, rng.randbytes(16), rng.randbytes(8)
    took = int(1e8 * math.exp(rng.gauss(0, 0.05)))
    yield rank, Span(now, took, step, None, trace, rng.randbytes(8), root, name, 0, status, message)
    yield rank, Span(now, 2 * took, step, None, trace, root, None, names.SPAN_STEP)


def plain(rng: random.Random, step: int) -> Rows:
    """Two ranks with training and policy metrics and spans: 24 points and 4 spans in a step."""
    for rank in (0, 1):
        values: dict[str, Value] = {key: 0.5 + math.exp(rng.gauss(0, 0.05)) for key in TRAINING + POLICY}
        yield rank, Metric(step * SECOND, step, None, None, values)
        yield from _spans(rng, step, rank, "train.forward")


def new_keys(rng: random.Random, step: int) -> Rows:
    """Metrics with names that come once, with and without a role, finite or not."""
    odd: dict[str, Value] = {f"a{step}/loss": rng.random(), f"b{step}": 1.0, f"c{step}": math.nan, "d": 1.0}
    yield step % 2, Metric(step * SECOND, step, None, None, odd)


def new_key_sets(rng: random.Random, step: int) -> Rows:
    """Records with ever different sets of two hundred names."""
    chosen: dict[str, Value] = {f"k{at}": 1.0 for at in rng.sample(range(1000), 200)}
    yield step % 2, Metric(step * SECOND, step, None, None, chosen)


def new_spans(rng: random.Random, step: int) -> Rows:
    """Spans with names that come once, and spans that never end."""
    for rank in (0, 1):
        yield from _spans(rng, step, rank, f"rollout-{step}")
        yield rank, Span(step * SECOND, None, step, None, b"", rng.randbytes(8), None, "never_ends")
        yield from _spans(rng, step, rank, f"save-{step}")
        yield from _spans(rng, step, rank, f"sync-{step}")


def one_step(rng: random.Random, step: int) -> Rows:
    """Spans of a step that never ends."""
    yield 0, Span(step * SECOND, 1000, 0, None, b"", rng.randbytes(8), rng.randbytes(8), "tool")


def failures(rng: random.Random, step: int) -> Rows:
    """Spans, logs, alerts and events that fail in ever different words."""
    words = "".join(rng.choices("abcdefghijklmnop", k=12))
    yield from _spans(rng, step, 0, f"s{step % 5000}", 2, f"{words} failed")
    yield 0, Log(step * SECOND, step, None, None, None, 17, f"{words} at {step}")
    yield 0, Alert(step * SECOND, step, None, None, None, 17, f"alert {words}", words)
    yield 1, Alert(step * SECOND, step, None, None, None, 17, f"alert {step % 400}", "again")
    yield 1, Event(step * SECOND, step, None, None, None, 17, names.EVENT_EXCEPTION, {"exception.message": words})
    yield 0, Event(step * SECOND, step, None, None, None, 9, names.EVENT_CONFIG, {words: step})


def faults(rng: random.Random, step: int) -> Rows:
    """A spike, a stall and a finding of the trainer every fifty steps or so."""
    bad = rng.random() < 0.02
    loss = (30.0 if bad else 1.0) * math.exp(rng.gauss(0, 0.05))
    yield 0, Metric(step * SECOND, step, None, None, {"loss": loss})
    now, trace, root = step * SECOND, rng.randbytes(16), rng.randbytes(8)
    took = int((4e9 if bad else 1e8) * math.exp(rng.gauss(0, 0.05)))
    yield 0, Span(now, took, step, None, trace, rng.randbytes(8), root, "train.data_load")
    yield 0, Span(now, took + 10**8, step, None, trace, root, None, names.SPAN_STEP)
    if bad:
        about = {f"{names.ALERT_FINDING}.kind": "spike", f"{names.ALERT_FINDING}.since": step}
        yield 0, Alert(now, step, None, None, None, 17, names.ALERT_FINDING, f"loss spiked at {step}", about)


STREAMS: dict[str, Callable[[random.Random, int], Rows]] = {
    each.__name__: each for each in (plain, new_keys, new_key_sets, new_spans, one_step, failures, faults)
}


class Engines:
    """What the trainer has (a diagnosis) and what the hub has besides (its alert rules)."""

    def __init__(self, world: int = 2) -> None:
        self.diagnosis, self.alerts = Diagnosis(world=world), Evaluator(with_packs([]).rules)
        self._writers = [Writer(id=f"w{rank}", run="r", project="p", rank=rank, world_size=world) for rank in (0, 1)]

    def feed(self, rank: int, record: Record) -> None:
        """Pass a record to both."""
        self.diagnosis.feed(rank, record)
        self.alerts.feed(self._writers[rank % 2], (record,), record.time)
        self.alerts.changed.clear()

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the diagnosis and of the alerts."""
        return size_of(self.diagnosis), size_of(self.alerts)


def points_of(record: Record) -> int:
    """Return how many points a record has; a span or another record is one."""
    return len(record.values) if isinstance(record, Metric) else 1


def curve(stream: Callable[[random.Random, int], Rows], lengths: list[int]) -> Iterator[tuple[int, Engines]]:
    """Yield the engines when they have had so many points."""
    rng, engines, points, step = random.Random(1), Engines(), 0, 0
    for length in lengths:
        while points < length:
            for rank, record in stream(rng, step):
                engines.feed(rank, record)
                points += points_of(record)
            step += 1
        yield points, engines


def of_series(count: int, records: int) -> Engines:
    """Return the engines of a run with so many series, one in twenty with a role."""
    engines = Engines(world=max(count // 100, 1))
    keys = TRAINING + tuple(f"layers.{at}/activation_mean" for at in range(95))
    for step in range(records):
        for rank in range(max(count // 100, 1)):
            values: dict[str, Value] = {key: 1 + 0.001 * ((step + at) % 97) for at, key in enumerate(keys)}
            engines.feed(rank, Metric(step * SECOND, step, None, None, values))
    return engines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=LENGTHS[-1], help="points of the longest run (10,000,000)")
    parser.add_argument("--hostile", type=int, default=1_000_000, help="points of the longest hostile run (1,000,000)")
    parser.add_argument("--series", type=int, default=SERIES[-1], help="series of the widest run (100,000)")
    parser.add_argument("--only", choices=sorted(STREAMS))
    args = parser.parse_args()
    for name, stream in STREAMS.items():
        if args.only in (None, name):
            print(f"\n{name}: {stream.__doc__}")
            most = args.most if stream is plain else args.hostile
            for points, engines in curve(stream, [each for each in LENGTHS if each <= most]):
                mine, alerts = engines.sizes()
                begun = time.process_time()
                found, took = len(engines.diagnosis.findings()), (time.process_time() - begun) * 1e3
                print(f"{points:>12,} points {mine / 1e6:8.2f} MB diagnosis {alerts / 1e6:8.2f} MB alerts", end="")
                print(f" {found:6} findings, folded in {took:.0f} ms", flush=True)
    for count in SERIES if args.only is None else ():
        if count <= args.series:
            mine, alerts = of_series(count, 200).sizes()
            print(f"{count:>12,} series {mine / 1e6:8.2f} MB diagnosis {alerts / 1e6:8.2f} MB alerts")


if __name__ == "__main__":
    main()
