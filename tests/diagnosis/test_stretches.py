"""Stretches: records that are processed many at a time leave the diagnosis as if each had been fed alone."""

import functools
import math
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from benchmarks.zoo.evaluate import FAULTS, HEALTHY, seeded
from benchmarks.zoo.real.evaluate import RECORDINGS
from benchmarks.zoo.real.tape import load
from benchmarks.zoo.story import Story
from stepscope.diagnosis import run_diagnosis
from stepscope.diagnosis.run_diagnosis import Diagnosis, Plan
from stepscope.diagnosis.stretches import stretch_at
from stepscope.model.names import ATTR_SAMPLED
from stepscope.model.records import Event, Link, Metric, Record, Span

SCRATCH = {"_scaled", "_away", "settings"}
"""What a detector writes down for itself while it looks ahead, and the settings that any of them looked up."""
PARTS = ("run", "_timing", "_hang", "_exits", "_found", "_kept", "_steps", "_moved", "_lost", "_desync", "_not_finite")


def state(diagnosis: Diagnosis) -> list[Any]:
    """Return all that a diagnosis knows, as plain values."""
    takes = [take for both in diagnosis._detectors.values() for each in both for take in each]
    watching = [*diagnosis._on_step, *diagnosis._on_span, *diagnosis._on_event, *takes]
    roots = [getattr(diagnosis, name) for name in PARTS]
    roots += [getattr(take, "__self__", None) for take in watching]
    seen = dict[int, Any]()  # of all, since each detector holds the state of the run
    return [{type(root).__name__: plain(root, seen)} for root in roots]


def plain(each: Any, seen: dict[int, Any]) -> Any:
    """Return an object as plain values, and note those of each object in it; NaN is a word, since it equals nothing."""
    kind = type(each)
    if kind is float:
        return each if each == each else "NaN"
    if kind in (int, bool, str, bytes) or each is None:
        return each
    if isinstance(each, float):
        return "NaN" if math.isnan(each) else each
    if isinstance(each, (int, str, bytes)):
        return each
    if isinstance(each, Mapping):
        return [[repr(key), plain(inner, seen)] for key, inner in each.items()]
    if isinstance(each, (set, frozenset)):
        return sorted(map(repr, each))
    if isinstance(each, (Sequence, deque)):
        return [plain(inner, seen) for inner in each]
    if callable(each) or isinstance(each, Plan):
        return None
    if id(each) in seen:
        return seen[id(each)]
    seen[id(each)] = None  # for what refers back to it
    names = slots_of(kind) | getattr(each, "__dict__", {}).keys()
    seen[id(each)] = {name: plain(getattr(each, name, None), seen) for name in sorted(names - SCRATCH)}
    return seen[id(each)]


@functools.cache
def slots_of(kind: type) -> frozenset[str]:
    """The names of the slots of a class."""
    return frozenset(name for each in kind.__mro__ for name in getattr(each, "__slots__", ()))


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where plain values differ, by path."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for name in before:
            yield from differences(before[name], after[name], f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, both in enumerate(zip(before, after, strict=True)):
            yield from differences(*both, f"{path}[{at}]")
    else:
        yield path, before, after


def alone(records: Iterable[Record], attempt: int = 1) -> Diagnosis:
    """Feed each record by itself."""
    diagnosis = Diagnosis()
    for record in records:
        diagnosis.feed(0, record, attempt, "here")
    return diagnosis


def together(records: Sequence[Record], sizes: Iterator[int]) -> Diagnosis:
    """Feed records many at a time."""
    diagnosis, at = Diagnosis(), 0
    while at < len(records):
        size = next(sizes)
        diagnosis.feed_many(0, list(records[at : at + size]), 1, "here")
        at += size
    return diagnosis


def in_sizes(seed: int) -> Iterator[int]:
    """Yield numbers of records: some that make no stretch, and some of many steps."""
    rng = random.Random(seed)
    while True:
        yield rng.choice((3, 17, 40, 104, 500, 2000, 10**6))


def assert_same(records: Sequence[Record], seed: int) -> None:
    """Fail where records fed together leave another state, or other findings."""
    one, many = alone(records), together(records, in_sizes(seed))
    assert list(differences(state(one), state(many))) == []
    assert repr(one.findings()) == repr(many.findings())  # NaN is not equal to itself
    assert one.changes == many.changes


def test_one_other_value_is_a_difference() -> None:
    """A state has each value that was fed, to its last digit."""
    fed = [Metric(step, step, None, None, {"loss": 1.0 + step / 7}) for step in range(40)]
    other = [*fed[:20], Metric(20, 20, None, None, {"loss": math.nextafter(1.0 + 20 / 7, 9.0)}), *fed[21:]]
    assert list(differences(state(alone(fed)), state(alone(fed)))) == []
    found = list(differences(state(alone(fed)), state(alone(other))))
    assert ("[0].RunState.by_role[0][1][0].values[20]", 1.0 + 20 / 7, math.nextafter(1.0 + 20 / 7, 9.0)) in found


def story(name: str) -> Story:
    """Return a run of the zoo."""
    if name in HEALTHY:
        return HEALTHY[name](seeded(name, 1))
    return FAULTS[name](seeded(name, 1))[0]


FEW = (
    *("plain", "jittery_loader", "curriculum", "warm_restarts", "epochs", "chatty", "amp_skips"),
    *("spike_3x", "slower_steps", "lr_zero", "exploding_gradients", "data_stall", "accuracy_drop", "memory_creep"),
)
"""Some of the zoo with one rank; all of it is the same, but takes minutes."""


@pytest.mark.parametrize("name", FEW)
def test_runs_of_the_zoo_are_the_same_fed_together(name: str) -> None:
    """Of runs with one rank, healthy or not, every detector knows the same."""
    told = [each for each in story(name).told() if each.attempt == 1]
    assert_same([each.record for each in told][:6000], len(name))


def loop(seed: int, steps: int) -> Iterator[Record]:
    """Yield what a loop records, and now and then something unusual."""
    rng = random.Random(seed)
    spans, phases = seed % 3 != 0, ("data_load", "forward", "optimizer")[seed % 2 :]
    now, step = 10**18, rng.randrange(100)
    odd = rng.choice((0.0, 0.002, 0.02))
    yield Event(now, None, None, None, None, 9, "train.run.started", {"config": {"lr": 0.01, "warmup_steps": 30}})
    for _ in range(steps):
        now += rng.randrange(10**5, 10**7)
        step += 1 if rng.random() > odd else rng.choice((-3, 0, 2, 40))
        if spans:
            ids = [rng.randbytes(8) for _ in range(len(phases) + 1)]
            begun, trace = now, rng.randbytes(16)
            for name, number in zip(phases, ids, strict=False):
                took = rng.randrange(10**6, 2 * 10**6) * (rng.choice((1, 500)) if rng.random() < odd else 1)
                parent = ids[-1] if rng.random() >= odd / 4 else None
                status = 2 if rng.random() < odd / 4 else 0
                yield Span(now, took, step, None, trace, number, parent, name, 0, status)
                now += took
            yield Span(
                begun, now - begun + 50_000, step, None, trace, ids[-1], None, "train.step", links=(Link(b"", b""),)
            )
        scale = 1.0 if rng.random() >= odd else rng.choice((3.0, 40.0, -1.0, math.nan, math.inf))
        logged: dict[str, Any] = {"loss": (2.0 * 0.999**step + 0.3 + rng.gauss(0, 0.01)) * scale}
        if seed % 5:
            logged["lr"] = 0.01 * min(step / 30, 1.0) if seed % 5 < 3 else 0.01
        if seed % 4 == 0:
            logged |= {"grad_norm": abs(rng.gauss(1, 0.1)) * abs(scale), "accuracy": 0.9 + rng.gauss(0, 0.01)}
        if seed % 7 == 0:
            logged["tokens"] = step * 100
        yield Metric(now, step, None, None, logged)
        if rng.random() < 0.02:
            yield Metric(now, None, None, "stepscope", {"beats": 1})
        if rng.random() < 0.02:
            yield Metric(
                now, None, None, "system", {"load1": rng.uniform(0, 30), "cpus": 2, "cpu_pressure": rng.random()}
            )
        if step % 100 == 0 and seed % 6 == 0:
            yield Metric(now, step, None, "eval", {"loss": 0.4 + rng.random() / 10})


@pytest.mark.parametrize("seed", range(12))
def test_loops_are_the_same_fed_together(seed: int) -> None:
    """Whatever a loop records, and whatever goes wrong in it, every detector knows the same."""
    assert_same(list(loop(seed, 900)), seed)


def test_recorded_trainings_are_the_same_fed_together() -> None:
    """So it is with trainings that were recorded."""
    for name, tape in list(load(RECORDINGS / "lightning.xz").items())[::4]:
        assert_same(list(tape.records())[:2000], len(name))


def test_a_plain_loop_is_taken_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loop in which nothing happens, two records in three are not processed one by one."""
    rng, records = random.Random(1), list[Record]()
    for step in range(3000):
        ids, begun = [bytes([part, *step.to_bytes(7, "big")]) for part in range(3)], step * 5_000_000
        for number, name in zip(ids, ("forward", "optimizer"), strict=False):
            records.append(Span(begun, rng.randrange(10**6, 2 * 10**6), step, None, b"t" * 16, number, ids[2], name))
        records.append(Span(begun, 4_000_000, step, None, b"t" * 16, ids[2], None, "train.step"))
        records.append(Metric(begun + 4_100_000, step, None, None, {"loss": 1 + rng.gauss(0, 0.01), "lr": 1e-3}))
    each: list[int] = []
    take = Diagnosis._take_each

    def counted(self: Diagnosis, rank: int, some: Iterable[Record], attempt: int) -> None:
        some = list(some)
        each.append(len(some))
        take(self, rank, some, attempt)

    monkeypatch.setattr(run_diagnosis.Diagnosis, "_take_each", counted)
    Diagnosis().feed_many(0, records)
    assert sum(each) < len(records) / 3


@pytest.mark.parametrize(
    "change",
    [
        {"status": 2},
        {"duration": None},
        {"step": 70},
        {"name": "evaluate"},
        {"parent_id": None},
        {"attrs": {ATTR_SAMPLED: True}},
    ],
)
def test_a_stretch_ends_where_a_step_is_not_like_those_before(change: dict[str, Any]) -> None:
    """A span that failed, is open, or is another one than in the steps before is looked at by itself."""
    spans = [
        Span(step * 1000, 10, step, None, b"t" * 16, bytes([step, part]), parent, name)
        for step in range(40)
        for part, parent, name in ((0, bytes([step, 1]), "forward"), (1, None, "train.step"))
    ]
    whole = stretch_at(0, spans, 0)
    assert whole is not None
    assert whole.steps == list(range(40))
    given = {name: getattr(spans[40], name) for name in Span.__struct_fields__} | change
    spans[40] = Span(**given)
    cut = stretch_at(0, spans, 0)
    assert cut is not None
    assert len(cut.steps) == 20
