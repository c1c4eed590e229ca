"""Span trees: order, depth, self time, and the critical path."""

from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.questions.traces import Node, build_trees, mark_critical, walk
from stepscope.hub.questions.traces.stored_spans import SpanRow
from stepscope.model.records import Span
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SPIKE, trace_of


def row(id: int, parent: int | None, time: int, duration: int) -> SpanRow:
    """A span with small numbers for ids."""
    return SpanRow(
        0,
        0,
        1,
        Span(
            time=time,
            duration=duration,
            step=1,
            axis=None,
            trace_id=bytes(16),
            span_id=id.to_bytes(8, "big"),
            parent_id=None if parent is None else parent.to_bytes(8, "big"),
            name=f"s{id}",
        ),
    )


def critical(roots: list[Node]) -> dict[str, int]:
    """The time that each span is critical for."""
    for root in roots:
        mark_critical(root)
    return {node.row.span.name: node.critical for node in walk(roots)}


def test_parents_come_first() -> None:
    """The walk goes from parents to children in the order they began."""
    roots = build_trees([row(3, 1, 5, 2), row(2, 1, 1, 2), row(1, None, 0, 10), row(4, 2, 2, 1)])
    assert [(node.row.span.name, node.depth) for node in walk(roots)] == [("s1", 0), ("s2", 1), ("s4", 2), ("s3", 1)]
    assert roots[0].self_time == 6


def test_a_lost_parent_makes_a_root() -> None:
    """A span with an unknown parent is a root."""
    assert [node.row.span.name for node in build_trees([row(2, 9, 0, 1), row(3, 3, 1, 1)])] == ["s2", "s3"]


def test_critical_path_of_parallel_children() -> None:
    """Of concurrent children, the one that ended last is on the critical path."""
    roots = build_trees([row(1, None, 0, 100), row(2, 1, 10, 30), row(3, 1, 10, 60), row(4, 1, 80, 10)])
    assert critical(roots) == {"s1": 10 + 10 + 10, "s2": 0, "s3": 60, "s4": 10}


def test_a_child_that_outlasts_its_parent() -> None:
    """What happens after the end of the root is not waited for."""
    assert critical(build_trees([row(1, None, 0, 10), row(2, 1, 5, 50)])) == {"s1": 5, "s2": 5}


_SPANS = st.lists(
    st.tuples(st.integers(1, 12), st.none() | st.integers(1, 12), st.integers(0, 50), st.integers(0, 50)), max_size=20
)


@given(_SPANS)
def test_any_spans_make_trees(given_spans: list[tuple[int, int | None, int, int]]) -> None:
    """Circles, doubles and nonsense times lose no span, and a root's path is exactly as long as the root."""
    rows = [row(*each) for each in given_spans]
    roots = build_trees(rows)
    nodes = walk(roots)
    assert len(nodes) == len({each.span.span_id for each in rows})
    assert len({node.row.span.span_id for node in nodes}) == len(nodes)
    for root in roots:
        mark_critical(root)
        assert sum(node.critical for node in walk([root])) == root.end - root.begin
        assert all(node.self_time >= 0 and node.critical >= 0 for node in walk([root]))


def test_a_trace(get: Get) -> None:
    """A trace comes whole, parents first."""
    found = get(f"/api/traces/{trace_of(SPIKE, 1).hex()}")
    assert [(span["name"], span["depth"]) for span in found["spans"]] == [
        ("train.step", 0),
        ("train.forward", 1),
        ("train.backward", 1),
    ]
    assert (found["duration_ms"], found["runs"], found["ranks"]) == (900.0, ["big"], [1])
    get(f"/api/traces/{bytes(15).hex()}ff", expect=404)
    get("/api/traces/xyz", expect=400)
