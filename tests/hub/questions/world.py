"""Runs to ask about: one of two ranks in which things go wrong, a restarted one, and a handful of small ones."""

import math
from collections.abc import Iterable

from stepscope.model import names
from stepscope.model.ports import Batch, Write, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span

START = 1_790_000_000 * 10**9
SECOND = 10**9
MS = 10**6
STEPS = 120
SPIKE, BAD, FAILED = 70, 90, 100
"""The steps of the big run with a spike, a NaN and an alert, and a failed span."""


def fill(write: Write) -> None:
    """Store the runs."""
    _big(write)
    _restarted(write)
    for number in range(12):
        _small(write, number)


def trace_of(step: int, rank: int) -> bytes:
    """The trace of a step on a rank."""
    return bytes([rank + 1]) * 8 + (step + 1).to_bytes(8, "big")


def span_of(step: int, rank: int, place: int) -> bytes:
    """The id of a span."""
    return bytes([rank + 1, place]) + (step + 1).to_bytes(6, "big")


def began(config: dict[str, object], time: int = START) -> Event:
    """The event with which a run begins."""
    attrs = {"config": config, "launcher": "test", "tags": {"team": "red"}}
    return Event(time, None, None, None, None, 9, names.EVENT_STARTED, attrs)


def ended(time: int, status: str = "finished") -> Event:
    """The event with which a run ends."""
    return Event(time, None, None, None, None, 9, names.EVENT_FINISHED, {"status": status})


def _big(write: Write) -> None:
    for rank in range(2):
        writer = Writer(
            id=f"w{rank}", run="big", project="gpt", name="baseline", rank=rank, world_size=2, wall_ns=START, host="a"
        )
        records: list[Record] = [began({"lr": 3e-4, "optim": {"name": "adam"}, "bs.x": 8})]
        for step in range(STEPS):
            records += _step(step, rank)
        records.append(ended(START + STEPS * SECOND, "finished"))
        write(Batch(writer, 1, records))


def _step(step: int, rank: int) -> Iterable[Record]:
    time = START + step * SECOND
    loss = math.nan if step == BAD and rank == 1 else 50.0 if step == SPIKE else 2.0 - step / 100 + rank * 0.01
    yield Metric(time + 900 * MS, step, None, "trainer", {"loss": loss, "lr": 3e-4})
    yield Metric(time + 500 * MS, None, None, "system", {"gpu_util": 90.0 + rank})
    yield Log(time + 300 * MS, step, None, trace_of(step, rank), span_of(step, rank, 0), 9, f"step {step} done")
    if step == BAD and rank == 1:
        yield Alert(time + 950 * MS, step, None, None, None, 17, "nan", "loss is NaN", {"key": "trainer/loss"})
    slow = 3 if step == SPIKE else 1
    parts = [("train.step", None, 0, 300), ("train.forward", 0, 10, 100), ("train.backward", 0, 120, 150)]
    for place, (name, parent, offset, lasts) in enumerate(parts):
        failed = step == FAILED and rank == 0 and place == 2
        yield Span(
            time=time + offset * MS * slow,
            duration=lasts * MS * slow,
            step=step,
            axis=None,
            trace_id=trace_of(step, rank),
            span_id=span_of(step, rank, place),
            parent_id=None if parent is None else span_of(step, rank, parent),
            name=name,
            status=2 if failed else 0,
            message="out of memory" if failed else "",
            attrs={"batch": step, "request_id": f"r{step}"},
        )


def _restarted(write: Write) -> None:
    """Attempt 2 begins again at step 50 and supersedes what attempt 1 had from there on."""
    for attempt, first in ((1, 0), (2, 50)):
        start = START + attempt * 1000 * SECOND
        writer = Writer(
            id=f"a{attempt}", run="again", project="gpt", name="restarted", attempt=attempt, wall_ns=start, host="b"
        )
        records: list[Record] = [began({"lr": 1e-3}, start)]
        records += [
            Metric(start + step * SECOND, step, None, "trainer", {"loss": float(attempt)})
            for step in range(first, first + 100)
        ]
        if attempt == 1:
            records.append(ended(start + 101 * SECOND, "failed"))
        write(Batch(writer, 1, records))


def _small(write: Write, number: int) -> None:
    start = START + (10_000 + number) * SECOND
    writer = Writer(id="w", run=f"small-{number}", project="tiny", name=f"s{number}", wall_ns=start, host="c")
    values = {"loss": math.inf if number == 3 else number / 10}
    records: list[Record] = [
        began({"lr": 10.0**-number, "layers": number}, start),
        Metric(start + SECOND, number, None, "trainer", values),
        ended(start + 2 * SECOND, "failed" if number % 2 else "finished"),
    ]
    write(Batch(writer, 1, records))
