"""Work on the store of a hub that is not running: fill a table of runs, make it compact and weigh it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.hub_journals import PHASES, START

SECOND = 10**9
WIDE_STEPS = 80
"""The steps of the run `wide`."""


def child(params: dict[str, Any]) -> dict[str, float]:
    """Open the store of a home folder and do what is asked: `runs` to write, a run of `ranks`, or `compact`."""
    from stepscope.hub.store.store import open_store

    store = open_store(Path(params["home"]) / "hub" / "store")
    try:
        if runs := params.get("runs", 0):
            _write_runs(store, runs)
        if ranks := params.get("ranks", 0):
            _write_ranks(store, ranks)
        return _weigh(store) if params.get("compact") else {}
    finally:
        store.close()


def _write_runs(store: Any, runs: int) -> None:
    from stepscope.model.ports import Batch, Writer

    for first in range(0, runs, 500):
        numbers = range(first, min(runs, first + 500))
        writers = [Writer(id="w", run=f"run-{number}", project="many", wall_ns=START) for number in numbers]
        store.write_many([Batch(writer, 1, list(_run(n))) for n, writer in zip(numbers, writers, strict=True)])


def _write_ranks(store: Any, ranks: int) -> None:
    """Write the run `wide`: two values and the spans of a step on each of many ranks."""
    from stepscope.model.ports import Batch, Writer

    for first in range(0, ranks, 256):
        numbers = range(first, min(ranks, first + 256))
        writers = [
            Writer(id=f"w{rank}", run="wide", project="many", rank=rank, world_size=ranks, wall_ns=START)
            for rank in numbers
        ]
        store.write_many([Batch(writer, 1, list(_rank(n))) for n, writer in zip(numbers, writers, strict=True)])


def _rank(rank: int) -> Iterator[Any]:
    from stepscope.model.records import Metric, Span

    for step in range(WIDE_STEPS):
        begin, trace = START + step * SECOND, rank.to_bytes(8) + step.to_bytes(8)
        values = {"loss": 2.0 + rank % 7 / 10 + step % 5 / 100, "lr": 0.1}
        yield Metric(begin, step, None, "trainer", values)
        parent = None
        for place, (name, offset, lasts) in enumerate(PHASES):
            id = rank.to_bytes(4) + (step * len(PHASES) + place).to_bytes(4)
            at, took = begin + offset * 10**6, lasts * 10**6 + rank * 1000
            yield Span(at, took, step, None, trace, id, parent, name, attrs={"train.bucket": "productive"})
            parent = parent or id


def _run(number: int) -> Iterator[Any]:
    from stepscope.model.records import Event, Metric

    begin = START + number * SECOND
    config = {"lr": 10.0 ** -(number % 6), "layers": number % 40, "optim": {"name": "adam"}}
    yield Event(begin, None, None, None, None, 9, "train.run.started", {"config": config})
    for step in range(5):
        values = {f"k{key}": float(step) for key in range(20)} | {"loss": number % 97 / 97}
        yield Metric(begin + step * SECOND, step, None, "trainer", values)
    yield Event(begin + 9 * SECOND, None, None, None, None, 9, "train.run.finished", {"status": "finished"})


def _weigh(store: Any) -> dict[str, float]:
    """Make it compact and return what a point and a span take on disk, with all that is kept to find them."""
    from stepscope.hub.store import maintenance

    maintenance.compact(store.engine)
    tables = {table.name: table for table in maintenance.info(store.engine).tables}
    points, spans = tables["metrics"].rows, tables["spans"].rows
    with_points = sum(tables[name].bytes for name in ("metrics", "totals", "series"))
    with_spans = sum(tables[name].bytes for name in ("spans", "traces"))
    return {
        "points": float(points),
        "bytes_per_point": with_points / max(points, 1),
        "spans": float(spans),
        "bytes_per_span": with_spans / max(spans, 1),
    }
