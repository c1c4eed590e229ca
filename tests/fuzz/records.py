"""Records of every kind for the seeds, and the writer they come from."""

import math

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Writer
from stepscope.model.records import (
    Alert,
    Event,
    ExponentialHistogram,
    Histogram,
    Instrument,
    Link,
    Log,
    Metric,
    Record,
    Span,
    SpanEvent,
    Summary,
    Value,
)

TIME = 1_790_000_000_000_000_000
TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))
WRITER = Writer(
    id="w", run="run-1", project="gpt", name="base", attempt=2, rank=3, world_size=8, host="node", pid=7, wall_ns=TIME,
    resource={"service.name": "trainer", "gpus": 8},
)  # fmt: skip
ATTRS = {"text": "a", "count": 1, "share": 0.5, "yes": True, "bytes": b"\0\1", "list": [1, "b", None], "dict": {"a": 1}}
EXEMPLAR = {"value": 0.5, "time": TIME, "trace_id": TRACE.hex(), "span_id": SPAN.hex(), "attrs": {"user": "u"}}
DISTRIBUTIONS: tuple[tuple[str, Value], ...] = (
    ("histogram", Histogram(6, 9.0, 0.1, 5.0, (1.0, 2.0), (1, 2, 3))),
    ("exponential_histogram", ExponentialHistogram(5, 3.5, -1.0, 2.0, 3, 1, 1e-9, -2, (1, 2), 4, (1,))),
    ("summary", Summary(4, 10.0, ((0.5, 2.0), (0.99, 4.0)))),
)


def every_kind() -> list[list[Record]]:
    """Some records of each kind, in groups that make small requests."""
    context = (TIME, 12, None, TRACE, SPAN)
    return [
        [Metric(TIME, 12, None, "trainer", {"loss": 0.5, "lr": 3e-4, "tokens": 4096, "ok": True}, {})],
        [Metric(TIME, None, None, None, {"odd": odd}) for odd in (math.nan, math.inf, -math.inf, -(2**63))],
        [Metric(TIME, 12, "epoch", None, {"n": 7}, ATTRS, Instrument("sum", "1", "how many", True, True, TIME - 5))],
        *([Metric(TIME, 3, None, None, {kind: value},
                  {ATTR_EXEMPLARS: [EXEMPLAR]} if kind != "summary" else {},
                  Instrument(kind, "s", "", False))] for kind, value in DISTRIBUTIONS),
        [Span(TIME, 5, 12, None, TRACE, SPAN, None, "train.step"),
         Span(TIME, 5, 12, "epoch", TRACE, b"\2" * 8, SPAN, "forward", 1, 2, "failed", ATTRS,
              (SpanEvent(TIME, "exception", {"exception.type": "E"}),), (Link(TRACE, SPAN, {"a": 1}),), "lib")],
        [Log(*context, 9, "a line", ATTRS, "logger"), Log(*context, 0, {"a": [1, 2]})],
        [Event(*context, 9, "train.run.started", {"config": {"lr": 1e-3}}), Alert(*context, 17, "loss", "is NaN", {})],
    ]  # fmt: skip
