"""What the pages of traces, logs, dashboards and SQL are looked at with: an RL run, a service, and a large trace."""

import json
import math
import random
import time
from typing import Any

import msgspec

from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Histogram, Instrument, Log, Metric, Record, Span
from stepscope.wire import frames

RUN, SERVICE, BIG = "ppo-cartpole", "tuft-prod", "profile"
STEPS, FAILED = 120, 60
SECOND, MS = 10**9, 10**6
RANKS = 2


def native(batches: list[Batch]) -> bytes:
    """Batches as a body of the native protocol."""
    body = b""
    for batch in batches:
        packed = [msgspec.msgpack.encode(record) for record in batch.records]
        body += frames.pack_head(batch.writer) + frames.pack_batch(batch.seq, packed)
    return body


def trace_of(step: int) -> bytes:
    """The trace of a step, which all ranks share."""
    return b"stepscop" + (step + 1).to_bytes(8, "big")


def rl_run(now: int) -> list[Batch]:
    """An RL run of two ranks, in which the KL divergence runs away and one backward pass fails."""
    begin = now - (STEPS + 5) * SECOND
    return [Batch(_writer(rank, begin), 1, list(_rl_records(rank, begin))) for rank in range(RANKS)]


def _writer(rank: int, begin: int) -> Writer:
    return Writer(
        id=f"w{rank}", run=RUN, project="rl", name="cartpole", rank=rank, world_size=RANKS, wall_ns=begin, host="node-1"
    )


def _rl_records(rank: int, begin: int) -> Any:
    random.seed(rank)
    yield Event(begin, None, None, None, None, 9, names.EVENT_STARTED, {"config": {"lr": 3e-4, "clip": 0.2}})
    for step in range(STEPS):
        time = begin + step * SECOND
        yield Metric(time + 900 * MS, step, None, None, _rl_values(step), {})
        yield Metric(
            time + 500 * MS, None, None, "system", {"gpu/0/utilization": 0.7 + 0.25 * math.sin(step / 9 + rank)}
        )
        yield from _rl_spans(step, rank, time)
        yield from _rl_logs(step, rank, time)


def _rl_values(step: int) -> dict[str, Any]:
    kl = 0.02 + 0.01 * math.sin(step / 5) + (0.12 if 80 <= step < 90 else 0.0)
    return {
        "signal.training.loss": 2.0 * math.exp(-step / 40) + 0.05 * random.random(),
        "signal.training.learning_rate": 3e-4 * (1 - step / STEPS),
        "signal.rl.kl_divergence": kl,
        "signal.rl.clip_fraction": 0.2 + 0.1 * math.sin(step / 8),
        "signal.rl.entropy": 3.0 - step / 60,
        "signal.rl.reward_mean": 10 + step * 1.5,
        "signal.rl.explained_variance": min(0.9, step / 80),
        "signal.performance.queue_depth": 3 + round(2 * math.sin(step / 4)),
        "signal.performance.forward_backward_duration_ms": 250 + 40 * random.random() + (400 if step % 25 == 0 else 0),
    }


def span_id(step: int, rank: int, place: int) -> bytes:
    """The id of a span."""
    return bytes([rank + 1, place + 1]) + (step + 1).to_bytes(6, "big")


_PARTS = (
    ("train.step", None, 0, 800, {}),
    ("rl.sample", 0, 5, 260, {"env": "CartPole-v1", "tuft.session_id": "s-41"}),
    ("env.reset", 1, 8, 20, {}),
    ("env.rollout", 1, 30, 230, {"episodes": 8}),
    ("rl.train", 0, 280, 480, {"tuft.operation_type": "forward_backward"}),
    ("forward_backward", 4, 290, 300, {"batch_size": 64}),
    ("optim_step", 4, 600, 140, {"lr": 3e-4}),
    ("rl.sync", 0, 765, 30, {}),
    ("data.prefetch", 4, 320, 120, {}),
)


def _rl_spans(step: int, rank: int, time: int) -> Any:
    slow = 1.15 if rank else 1.0
    for place, (name, parent, offset, lasts, attrs) in enumerate(_PARTS):
        failed = step == FAILED and rank == 1 and name == "forward_backward"
        yield Span(
            time=time + int(offset * slow) * MS,
            duration=int(lasts * slow) * MS,
            step=step,
            axis=None,
            trace_id=trace_of(step),
            span_id=span_id(step, rank, place),
            parent_id=None if parent is None else span_id(step, rank, parent),
            name=name,
            status=2 if failed else 0,
            message="CUDA out of memory" if failed else "",
            attrs=dict(attrs),
        )


def _rl_logs(step: int, rank: int, time: int) -> Any:
    ids = trace_of(step), span_id(step, rank, 5)
    yield Log(
        time + 300 * MS,
        step,
        None,
        *ids,
        9,
        f"step {step}: forward and backward done",
        {"device": f"cuda:{rank}"},
        "trainer",
    )
    if step % 10 == 0:
        yield Log(time + 700 * MS, step, None, None, None, 13, f"reward moved by {step / 7:.2f}", {}, "rollout")
    if step == FAILED and rank == 1:
        yield Log(
            time + 590 * MS,
            step,
            None,
            *ids,
            17,
            "CUDA out of memory: tried to allocate 2.00 GiB",
            {"device": "cuda:1"},
            "torch",
        )
    if step == 80 and rank == 0:
        yield Event(time + 990 * MS, step, None, None, None, 13, "kl.blowup", {"kl": 0.14})


def service_run(now: int) -> list[Batch]:
    """A training service with histograms that add up."""
    records: list[Record] = []
    begin = now - 600 * SECOND
    bounds = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
    counts = [0] * 7
    random.seed(3)
    made = Instrument("histogram", "s", "Duration of sampling", True, False, begin)
    for minute in range(60):
        at = begin + minute * 10 * SECOND
        for _ in range(20):
            counts[random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5 if minute > 40 else 3))] += 1
        value = Histogram(sum(counts), sum(counts) * 0.3, 0.01, 2.4, bounds, tuple(counts))
        records.append(Metric(at, None, None, None, {"tuft.sampling.duration": value}, {}, made))
        records.append(Metric(at, None, None, None, {"tuft.futures.queue_length": 4 + minute % 7}))
        records.append(Metric(at, None, None, None, {"tuft.sampling.requests": minute * 20}))
        records.append(Metric(at, None, None, None, {"tuft.training.models.active": 2 + (minute > 30)}))
    writer = Writer(id="svc", run=SERVICE, project="tuft", name="service", wall_ns=begin, host="node-2")
    return [Batch(writer, 1, records)]


def big_trace(spans: int = 100_000, ranks: int = 8) -> bytes:
    """A trace file of a profiler with so many spans: steps, layers, operations."""
    random.seed(1)
    events: list[dict[str, Any]] = []
    per_step = 1 + 33 * 3
    for rank in range(ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        for step in range(spans // ranks // per_step):
            begin = step * 10_100 + rank * 40
            events.append(_complete(rank, f"ProfilerStep#{step}", begin, 10_000))
            for layer in range(33):
                at = begin + layer * 300
                events.append(_complete(rank, f"layer.{layer}", at, 280))
                events.append(_complete(rank, "aten::mm", at + 10, 100 + random.random() * 50))
                events.append(_complete(rank, "aten::add", at + 180, 60))
    return json.dumps({"traceEvents": events, "baseTimeNanoseconds": time.time_ns() - 10**10}).encode()


def _complete(pid: int, name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": ts, "dur": dur, "args": {"shape": "[512, 512]"}}
