"""Which span and rank a slow step is due to: the own time of each span against what is usual for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.hub.questions.evidence import Finding, SlowStep, Work
from stepscope.hub.questions.judging import slow_level
from stepscope.hub.questions.slowness import blamed
from stepscope.hub.questions.spans import SpanRow
from stepscope.hub.questions.traces import Node, build_trees, walk


def work(rows: Sequence[SpanRow], usual: Mapping[str, float]) -> list[Work]:
    """The own time of each span name on each rank, and what is usual: what its children usually leave of it."""
    made: dict[tuple[str, int], list[float]] = {}
    for node in walk(build_trees(rows)):
        name = node.row.span.name
        inside = sum(usual.get(child.row.span.name, 0.0) for child in node.children)
        ordinary = max(usual.get(name, 0.0) - inside, 0.0)
        total = made.setdefault((name, node.row.rank), [0.0, 0.0])
        total[0] += node.self_time
        total[1] += ordinary
    return [Work(name, rank, own, ordinary) for (name, rank), (own, ordinary) in made.items()]


def slow(rows: Sequence[SpanRow], usual: Mapping[str, float]) -> dict[str, Any] | None:
    """Say why a step was slow, by its newest attempt; None when it was not, or nothing is to blame."""
    newest = max((row.attempt for row in rows), default=0)
    mine = [row for row in rows if row.attempt == newest]
    roots = [row for row in mine if not row.span.parent_id and row.span.name in usual]
    root = max(roots, key=lambda row: row.span.duration or 0, default=None)
    if root is None or root.span.step is None:
        return None
    took, ordinary = float(root.span.duration or 0), usual[root.span.name]
    if not slow_level(took, ordinary):
        return None
    found = blamed(SlowStep(root.span.step, newest, took, ordinary, work(mine, usual)))
    if found is None:
        return None
    return {"text": found.text, "span": found.span, "rank": found.rank, "span_ids": _culprits(mine, found)}


def _culprits(rows: Sequence[SpanRow], found: Finding) -> list[str]:
    """The spans to blame: of the rank at fault, or of every rank, the one of that name with most time of its own."""
    worst: dict[int, Node] = {}
    for node in walk(build_trees(rows)):
        rank = node.row.rank
        if node.row.span.name == found.span and found.rank in (None, rank):
            worst[rank] = max(worst.get(rank, node), node, key=lambda each: each.self_time)
    return [node.row.span.span_id.hex() for _, node in sorted(worst.items())]
