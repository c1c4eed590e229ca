"""Spans as trees: parents before children, time of their own, and the critical path."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stepscope.hub.questions.spans import SpanRow


@dataclass(slots=True)
class Node:
    """A span in its tree. `critical` is the time it alone was what the end of its root waited for, in ns."""

    row: SpanRow
    depth: int = 0
    children: list["Node"] = field(default_factory=list)
    own: int = 0
    critical: int = 0

    @property
    def begin(self) -> int:
        """When it began."""
        return self.row.span.time

    @property
    def end(self) -> int:
        """When it ended; one that is open has not lasted yet."""
        return self.row.span.time + (self.row.span.duration or 0)


def grow(rows: Iterable[SpanRow]) -> list[Node]:
    """Make trees and return their roots in the order they began.

    A span whose parent is not here is a root; of spans that are each other's parents the first is.
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
            _cut(nodes, node)
            roots.append(node)
            reached |= {each.row.span.span_id for each in walk([node])}
    roots.sort(key=_began)
    for node in walk(roots):
        node.own = own_time(node)
    return roots


def _cut(nodes: dict[bytes, Node], node: Node) -> None:
    """Take a node from its parent, to open a circle."""
    parent = nodes[node.row.span.parent_id or b""]
    parent.children = [child for child in parent.children if child is not node]


def walk(roots: Sequence[Node]) -> list[Node]:
    """The nodes of trees, parents first, children in the order they began, with their depth."""
    found: list[Node] = []
    waiting = [(root, 0) for root in sorted(roots, key=_began, reverse=True)]
    while waiting:
        node, depth = waiting.pop()
        node.depth = depth
        found.append(node)
        waiting += [(child, depth + 1) for child in sorted(node.children, key=_began, reverse=True)]
    return found


def _began(node: Node) -> tuple[int, bytes]:
    return node.begin, node.row.span.span_id


def own_time(node: Node) -> int:
    """The time in which none of its children was at work; children may overlap and outlast it."""
    covered, reached = 0, node.begin
    for child in sorted(node.children, key=_began):
        low, high = max(child.begin, reached), min(child.end, node.end)
        if high > low:
            covered += high - low
            reached = high
    return max(node.end - node.begin - covered, 0)


def mark_critical(root: Node) -> None:
    """Walk back from the end of a root and give each moment to the span that everything waited for.

    At any moment that is the child that ended last before it, or the parent where no child was at work.
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
