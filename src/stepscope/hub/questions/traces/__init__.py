"""Traces: spans as trees with self time and critical path, and as lanes for drawing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stepscope.hub.questions.toolbox.endpoint import Endpoint, Ms, Param, Reader, milliseconds, seconds
from stepscope.hub.questions.traces.stored_spans import PlacedSpan, SpanRange, SpanRow, read_trace, span_json
from stepscope.hub.refusals import Refused, bad_request, not_found
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.model.records import Seconds

SLOW_TIMES, VERY_SLOW_TIMES = 1.5, 3.0
"""A span that took this many times the median is slow, or very slow..."""
SLOW_NS = 1e6
"""... if it also took this much longer."""


@dataclass(slots=True)
class Node:
    """A span in its tree. `critical` is its time on the critical path, in ns."""

    row: SpanRow
    depth: int = 0
    children: list["Node"] = field(default_factory=list)
    self_time: int = 0
    critical: int = 0

    @property
    def begin(self) -> int:
        """When it began."""
        return self.row.span.time

    @property
    def end(self) -> int:
        """When it ended; an open span has no duration yet."""
        return self.row.span.time + (self.row.span.duration or 0)


def build_trees(rows: Iterable[SpanRow]) -> list[Node]:
    """Build trees and return their roots in the order they began.

    A span whose parent is missing is a root; a cycle of parents is cut at its first span.
    """
    nodes = {row.span.span_id: Node(row) for row in rows}
    roots = []
    for node in nodes.values():
        parent = nodes.get(node.row.span.parent_id or b"")
        if parent is None or parent is node:
            roots.append(node)
        else:
            parent.children.append(node)
    reached = {node.row.span.span_id for node in walk(roots)}
    for id, node in nodes.items():
        if id not in reached:
            _detach(nodes, node)
            roots.append(node)
            reached |= {each.row.span.span_id for each in walk([node])}
    roots.sort(key=_start)
    for node in walk(roots):
        node.self_time = _self_time(node)
    return roots


def _detach(nodes: dict[bytes, Node], node: Node) -> None:
    """Take a node from its parent, to break a cycle."""
    parent = nodes[node.row.span.parent_id or b""]
    parent.children = [child for child in parent.children if child is not node]


def walk(roots: Sequence[Node]) -> list[Node]:
    """The nodes of trees, parents first, children in the order they began, with their depth."""
    found: list[Node] = []
    waiting = [(root, 0) for root in sorted(roots, key=_start, reverse=True)]
    while waiting:
        node, depth = waiting.pop()
        node.depth = depth
        found.append(node)
        waiting += [(child, depth + 1) for child in sorted(node.children, key=_start, reverse=True)]
    return found


def _start(node: Node) -> tuple[int, bytes]:
    return node.begin, node.row.span.span_id


def _self_time(node: Node) -> int:
    """The time in which none of its children ran; children may overlap and outlast it."""
    covered, reached = 0, node.begin
    for child in sorted(node.children, key=_start):
        low, high = max(child.begin, reached), min(child.end, node.end)
        if high > low:
            covered += high - low
            reached = high
    return max(node.end - node.begin - covered, 0)


def mark_critical(root: Node) -> None:
    """Walk back from the end of a root and attribute each moment to the span that the end waited for.

    At any moment that is the child that ended last before it, or the parent where no child ran.
    """
    waiting = [(root, root.begin, root.end)]
    while waiting:
        node, since, at = waiting.pop()
        for child in sorted(node.children, key=lambda each: (each.end, each.begin), reverse=True):
            begin, end = max(child.begin, since), min(child.end, at)
            if begin >= end:
                continue
            node.critical += at - end
            waiting.append((child, begin, end))
            at = begin
        node.critical += at - since


class NodeJson(PlacedSpan):
    """A span with its place in the tree, its self time, and its duration against the usual one of its name."""

    depth: int
    own_ms: Ms
    critical_ms: Annotated[float | None, Meta(description="Milliseconds on the critical path.")]
    usual_ms: Ms
    ratio: Annotated[float | None, Meta(description="Its duration over the usual one.")]
    slow: Annotated[int, Meta(description="0 as usual, 1 slow, 2 very slow.")]


class TreeJson(TypedDict):
    """Spans of a trace, parents first; offsets count from its beginning."""

    begin: Seconds
    duration_ms: Ms
    ranks: list[int]
    runs: list[str]
    open: int
    spans: list[NodeJson]


class TraceJson(TreeJson):
    """A whole trace."""

    trace_id: str


class Lane(TypedDict):
    """A thread of a rank."""

    run: str
    rank: int
    thread: str


class SpanColumns(TypedDict):
    """Spans column by column; `name`, `trace` and `lane` are places in the lists of these."""

    span_id: list[str]
    parent_id: list[str]
    trace: list[int]
    name: list[int]
    lane: list[int]
    start: list[float]
    duration: list[float | None]
    status: list[int]
    step: list[int | None]


class Lanes(TypedDict):
    """Spans for drawing, column by column; starts are ms since `begin`, and open spans last null."""

    begin: Seconds
    duration_ms: Ms
    open: int
    lanes: list[Lane]
    names: list[str]
    traces: list[str]
    columns: SpanColumns
    more: bool


def slow_level(duration: float | None, usual: float | None) -> int:
    """Return how slow a span was (durations in ns): 0 normal, 1 slow, 2 very slow."""
    if duration is None or not usual or duration - usual < SLOW_NS or duration < SLOW_TIMES * usual:
        return 0
    return 2 if duration >= VERY_SLOW_TIMES * usual else 1


def node_json(node: Node, usual: Mapping[str, float], run: str, begin: int) -> NodeJson:
    """A span with its place in the tree, its self time, and its duration against the usual one of its name."""
    span = node.row.span
    median = usual.get(span.name)
    ratio = span.duration / median if median and span.duration is not None else None
    return {
        **span_json(node.row, run),
        "offset_ms": milliseconds(span.time - begin),
        "depth": node.depth,
        "own_ms": milliseconds(node.self_time),
        "critical_ms": milliseconds(node.critical),
        "usual_ms": milliseconds(median),
        "ratio": None if ratio is None else round(ratio, 3),
        "slow": slow_level(span.duration, median),
    }


def trace_json(ended: Sequence[SpanRow], still_open: Sequence[SpanRow], owners: Mapping[int, str]) -> TreeJson:
    """A whole trace, flat: parents first, with depth; offsets count from its beginning."""
    roots = build_trees((*ended, *still_open))
    for root in roots:
        mark_critical(root)
    nodes = walk(roots)
    begin = min((node.begin for node in nodes), default=0)
    end = max((node.end for node in nodes), default=0)
    return {
        "begin": seconds(begin),
        "duration_ms": milliseconds(end - begin),
        "ranks": sorted({node.row.rank for node in nodes}),
        "runs": sorted({owners.get(node.row.run, "") for node in nodes}),
        "open": len(still_open),
        "spans": [node_json(node, {}, owners.get(node.row.run, ""), begin) for node in nodes],
    }


RANGE_PARAMS = (
    Param("trace_id", "hex", "the spans of this trace", width=16),
    Param("run", "text", "or those of this run"),
    Param("step", "integer", "at this step"),
    Param("last", "integer", "to this step"),
)
MAX_SPANS = 200_000


@Endpoint(
    "/api/traces/{trace_id}",
    "readTrace",
    (Param("trace_id", "hex", "the trace", required=True, place="path", width=16),),
)
def trace(reader: Reader, given: dict[str, Any]) -> TraceJson:
    """A whole trace: its spans, parents first, with depth and critical path."""
    ended, still_open = read_trace(reader.engine, given["trace_id"], limit=20_000)
    owners = reader.visible_ids({row.run for row in (*ended, *still_open)})
    ended = [row for row in ended if row.run in owners]
    still_open = [row for row in still_open if row.run in owners]
    if not ended and not still_open:
        raise not_found(f"there is no trace {given['trace_id'].hex()}")
    return {"trace_id": given["trace_id"].hex(), **trace_json(ended, still_open, owners)}


Array = npt.NDArray[Any]
_THREAD = """if(has(attr_names, 'thread.name'), attr_values[indexOf(attr_names, 'thread.name')],
    attr_values[indexOf(attr_names, 'thread.id')])"""
_SELECT = f"""run, rank, time, duration, step, status, name, lower(hex(trace_id)) AS trace, lower(hex(span_id)) AS id,
    if(parent_id = toFixedString('', 8), '', lower(hex(parent_id))) AS parent, {_THREAD} AS thread"""


def read_columns(engine: Engine, spans: SpanRange, limit: int) -> dict[str, Any]:
    """Read spans without attributes, column by column, in the order they began; open ones have the duration -1."""
    where = spans.condition(engine)
    ended, begun = engine.query_many(
        [
            f"SELECT {_SELECT} FROM {table} WHERE {where} ORDER BY time, id LIMIT {int(limit)}"
            for table in ("spans", "open_spans")
        ]
    )
    over = set(ended["id"])
    still_open = np.array([id not in over for id in begun["id"]], dtype=bool)

    def numbers(name: str) -> Array:
        other = begun.array(name, "i8")[still_open]
        return np.concatenate([ended.array(name, "i8").astype("i8"), other.astype("i8")])

    def texts(name: str) -> list[str]:
        return ended[name] + [text for text, keep in zip(begun[name], still_open, strict=True) if keep]

    columns: dict[str, Any] = {name: numbers(name) for name in ("run", "rank", "time", "duration", "status", "step")}
    columns["duration"][len(ended) :] = -1
    columns["step"] = [step_of(step) for step in columns["step"].tolist()]
    return columns | {name: texts(name) for name in ("name", "trace", "id", "parent", "thread")}


def lanes_json(spans: dict[str, Any], owners: Mapping[int, str], limit: int) -> Lanes:
    """Spans of the runs in `owners` as columns; starts are ms since `begin`, and open spans last null."""
    runs = spans["run"].tolist()
    seen = np.array([run in owners for run in runs], dtype=bool)
    times, durations = spans["time"][seen], spans["duration"][seen]
    begin = int(times.min()) if len(times) else 0
    end = int((times + np.maximum(durations, 0)).max()) if len(times) else 0

    def kept(values: Iterable[Any]) -> list[Any]:
        return list(values) if seen.all() else [value for value, keep in zip(values, seen, strict=True) if keep]

    names, name = _distinct(kept(spans["name"]))
    traces, trace = _distinct(kept(spans["trace"]))
    placed, lane = _distinct(kept(zip(runs, spans["rank"].tolist(), spans["thread"], strict=True)), ordered=True)
    lasts = np.round(durations / 1e6, 6).tolist()
    return {
        "begin": seconds(begin),
        "duration_ms": milliseconds(end - begin),
        "open": int((durations < 0).sum()),
        "lanes": [{"run": owners[run], "rank": rank, "thread": thread} for run, rank, thread in placed],
        "names": names,
        "traces": traces,
        "columns": {
            "span_id": kept(spans["id"]),
            "parent_id": kept(spans["parent"]),
            "trace": trace,
            "name": name,
            "lane": lane,
            "start": np.round((times - begin) / 1e6, 6).tolist(),
            "duration": [None if each < 0 else each for each in lasts],
            "status": spans["status"][seen].tolist(),
            "step": kept(spans["step"]),
        },
        "more": len(spans["id"]) >= limit,
    }


def _distinct(values: list[Any], *, ordered: bool = False) -> tuple[list[Any], list[int]]:
    """Distinct values, and for each value which of them it is."""
    distinct = list(dict.fromkeys(values))
    if ordered:
        distinct.sort()
    number = {value: at for at, value in enumerate(distinct)}
    return distinct, [number[value] for value in values]


def asked_range(reader: Reader, given: dict[str, Any]) -> SpanRange:
    """The spans that a request asks for: those of a trace, or of some steps of a run."""
    if given["trace_id"] is not None:
        return SpanRange(trace_id=given["trace_id"])
    if given["run"] is None or given["step"] is None:
        raise bad_request("name a trace_id, or a run and a step")
    last = given["step"] if given["last"] is None else given["last"]
    return SpanRange(run=reader.number(given["run"]), first=given["step"], last=max(given["step"], last))


@Endpoint(
    "/api/spans/lanes",
    "drawSpans",
    (*RANGE_PARAMS, Param("limit", "integer", "at most this many spans", MAX_SPANS, low=1, high=MAX_SPANS)),
)
def draw(reader: Reader, given: dict[str, Any]) -> Lanes:
    """A trace, or steps of a run on all ranks, for drawing: spans as columns, without attributes."""
    spans = read_columns(reader.engine, asked_range(reader, given), given["limit"])
    made = lanes_json(spans, reader.visible_ids(set(spans["run"].tolist())), given["limit"])
    if not made["lanes"]:
        raise no_spans(given)
    return made


def no_spans(given: dict[str, Any]) -> Refused:
    """The refusal of a request for spans that do not exist."""
    what = f"trace {given['trace_id'].hex()}" if given["trace_id"] is not None else f"span at step {given['step']}"
    return not_found(f"there is no {what}")
