"""What watchers are told of a moment: points column by column, records one by one, or which runs moved."""

from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.hub.questions import shapes
from stepscope.hub.questions.logs import LogRow
from stepscope.hub.questions.spans import SpanRow
from stepscope.model.ports import Batch
from stepscope.model.records import KINDS, Metric, Span, Value, kind
from stepscope.wire.plain import word


def of_run(batch: Batch, kinds: Sequence[str] = KINDS, keys: Sequence[str] = ()) -> dict[str, Any] | None:
    """The records of a batch by kind; None when none of them is wanted."""
    writer = batch.writer
    points: dict[str, dict[str, list[Any]]] = {}
    others: dict[str, list[dict[str, Any]]] = {}
    for record in batch.records:
        if kind(record) not in kinds:
            continue
        if isinstance(record, Metric):
            _add_points(points, record, keys)
        elif isinstance(record, Span):
            row = SpanRow(0, writer.rank, writer.attempt, record)
            others.setdefault("spans", []).append(shapes.span(row, writer.run))
        else:
            entry = shapes.record(LogRow(0, writer.rank, writer.attempt, record), writer.run)
            others.setdefault(f"{entry['kind']}s", []).append(entry)
    if not points and not others:
        return None
    who = {"run": writer.run, "writer": writer.id, "rank": writer.rank, "attempt": writer.attempt}
    return {**who, **({"points": points} if points else {}), **others}


def _add_points(points: dict[str, dict[str, list[Any]]], record: Metric, keys: Sequence[str]) -> None:
    for key, value in record.points():
        if keys and key not in keys:
            continue
        columns = points.setdefault(key, {"step": [], "time": [], "value": []})
        columns["step"].append(record.step)
        columns["time"].append(shapes.seconds(record.time))
        columns["value"].append(_scalar(value))


def _scalar(value: Value) -> float | str | None:
    if isinstance(value, (int, float)):
        return word(float(value))
    return word(value.total / value.count) if value.count and value.total is not None else None


def of_all(batches: Iterable[Batch]) -> dict[str, Any]:
    """Which runs moved, each with its highest step and latest time in these batches."""
    runs: dict[str, dict[str, Any]] = {}
    for batch in batches:
        steps = [record.step for record in batch.records if record.step is not None]
        last = max((record.time for record in batch.records), default=0)
        known = runs.setdefault(batch.writer.run, {"id": batch.writer.run, "step": None, "seen": 0.0})
        known["step"] = max(steps + ([] if known["step"] is None else [known["step"]]), default=None)
        known["seen"] = max(known["seen"], shapes.seconds(last) or 0.0)
    return {"runs": list(runs.values())}
