"""One step as JSON: values against the steps before, span trees against the usual step, and what else happened."""

import math
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from stepscope.hub.questions import shapes
from stepscope.hub.questions.blame import slow
from stepscope.hub.questions.judging import findings, slow_level, value_level
from stepscope.hub.questions.spans import SpanRow
from stepscope.hub.questions.step_rows import Reading, StepValue, StepView
from stepscope.hub.questions.tree import Node, grow, mark_critical, walk
from stepscope.hub.refusals import Refusal, Refused
from stepscope.wire.plain import plain, word

LEAST_BEFORE = 5
"""So many values before are needed to say how unusual one is."""


def step(view: StepView, run: str) -> dict[str, Any]:
    """Everything about a step; offsets count from `begin`. Refused when the attempt named never came to it."""
    if view.attempts and view.attempt not in view.attempts:
        came = f"attempt{'s' * (len(view.attempts) > 1)} {', '.join(map(str, view.attempts))}"
        text = f"attempt {view.attempt} never came to step {view.step}; {came} did"
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, text))
    told = {
        "run": run,
        "step": view.step,
        "attempt": view.attempt,
        "attempts": view.attempts,
        "begin": shapes.seconds(view.begin),
        "end": shapes.seconds(view.end),
        "duration_ms": shapes.milliseconds(view.end - view.begin),
        "previous": view.previous,
        "next": view.following,
        "metrics": metrics(view.values),
        "ranks": ranks(view.spans, view.usual, run, view.begin),
        "slow": slow(view.spans, view.usual),
        "open_spans": [shapes.span(row, run, view.begin) for row in view.open],
        "usual_ms": {name: shapes.milliseconds(median) for name, median in sorted(view.usual.items())},
        "logs": [shapes.record(row, run) for row in view.logs],
        "alerts": [shapes.record(row, run) for row in view.alerts],
        "system": [_reading(reading) for reading in view.system],
    }
    return {**told, "findings": findings(told)}


def metrics(values: Iterable[StepValue]) -> list[dict[str, Any]]:
    """The values of a step by key, one entry for each rank (and each set of attributes)."""
    by_key: dict[str, list[StepValue]] = {}
    for value in values:
        by_key.setdefault(value.line.key, []).append(value)
    return [
        {"key": key, "unit": group[0].line.unit, "values": [_value(value) for value in group]}
        for key, group in by_key.items()
    ]


def _value(value: StepValue) -> dict[str, Any]:
    delta, z = against(value.value, value.mean, value.std, value.before)
    return {
        "rank": value.line.rank,
        "attempt": value.attempt,
        "attrs": plain(value.line.attrs),
        "scope": value.line.scope,
        "time": shapes.seconds(value.time),
        "value": word(value.value),
        "logged": value.logged,
        "mean": word(value.mean) if value.before else None,
        "std": word(value.std) if value.before else None,
        "before": value.before,
        "delta": None if delta is None else word(delta),
        "z": z,
        "level": value_level(value.value, value.mean, delta, z),
    }


def against(value: float, mean: float, std: float, before: int) -> tuple[float | None, float | None]:
    """How far a value is from the mean of those before, and how many standard deviations that is.

    None where it cannot be said: nothing before, too little for a deviation, or values that never changed.
    """
    if not before or not math.isfinite(value):
        return None, None
    delta = value - mean
    # Below a ten-millionth of the mean a deviation is rounding.
    usable = before >= LEAST_BEFORE and std > abs(mean) * 1e-7 and math.isfinite(std)
    z = delta / std if usable else None
    return delta, round(z, 3) if z is not None and math.isfinite(z) else None


def ranks(spans: Sequence[SpanRow], usual: Mapping[str, float], run: str, begin: int) -> list[dict[str, Any]]:
    """The span trees of each rank, flat: parents first, with depth; the rank whose spans end last is critical."""
    by_rank: dict[int, list[SpanRow]] = {}
    for row in spans:
        by_rank.setdefault(row.rank, []).append(row)
    grown = {rank: grow(rows) for rank, rows in sorted(by_rank.items())}
    ends = {rank: max(root.end for root in roots) for rank, roots in grown.items()}
    slowest = max(ends, key=lambda rank: ends[rank], default=None)
    return [_rank(rank, roots, usual, run, begin, critical=rank == slowest) for rank, roots in grown.items()]


def _rank(
    rank: int, roots: list[Node], usual: Mapping[str, float], run: str, begin: int, *, critical: bool
) -> dict[str, Any]:
    for root in roots:
        mark_critical(root)
    nodes = walk(roots)
    first, last = min(node.begin for node in nodes), max(node.end for node in nodes)
    path = sorted((node for node in nodes if node.critical), key=lambda node: (node.begin, node.depth))
    return {
        "rank": rank,
        "critical": critical,
        "offset_ms": shapes.milliseconds(first - begin),
        "duration_ms": shapes.milliseconds(last - first),
        "errors": sum(node.row.span.status == 2 for node in nodes),
        "critical_path": [node.row.span.span_id.hex() for node in path],
        "spans": [_node(node, usual, run, begin) for node in nodes],
    }


def _node(node: Node, usual: Mapping[str, float], run: str, begin: int) -> dict[str, Any]:
    span = node.row.span
    median = usual.get(span.name)
    ratio = span.duration / median if median and span.duration is not None else None
    return {
        **shapes.span(node.row, run, begin),
        "depth": node.depth,
        "own_ms": shapes.milliseconds(node.own),
        "critical_ms": shapes.milliseconds(node.critical),
        "usual_ms": shapes.milliseconds(median),
        "ratio": None if ratio is None else round(ratio, 3),
        "slow": slow_level(span.duration, median),
    }


def trace(ended: Sequence[SpanRow], still_open: Sequence[SpanRow], owners: Mapping[int, str]) -> dict[str, Any]:
    """A whole trace, flat: parents first, with depth; offsets count from its beginning."""
    roots = grow((*ended, *still_open))
    for root in roots:
        mark_critical(root)
    nodes = walk(roots)
    begin = min((node.begin for node in nodes), default=0)
    end = max((node.end for node in nodes), default=0)
    return {
        "begin": shapes.seconds(begin),
        "duration_ms": shapes.milliseconds(end - begin),
        "ranks": sorted({node.row.rank for node in nodes}),
        "runs": sorted({owners.get(node.row.run, "") for node in nodes}),
        "open": len(still_open),
        "spans": [_node(node, {}, owners.get(node.row.run, ""), begin) for node in nodes],
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "key": reading.line.key,
        "rank": reading.line.rank,
        "unit": reading.line.unit,
        "attrs": plain(reading.line.attrs),
        "time": shapes.seconds(reading.time),
        "value": word(reading.value),
        "min": word(reading.low),
        "max": word(reading.high),
        "points": reading.points,
    }
