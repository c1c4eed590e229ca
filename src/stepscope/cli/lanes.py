"""The spans of a step as text: every rank side by side against the usual, or one rank in detail."""

from collections.abc import Iterator, Sequence
from typing import Any

from stepscope.cli import text
from stepscope.model import formatting

BESIDE = 8
"""So many ranks are shown side by side: those that took longest."""
SHOWN = 20
PATH = 6

Lane = dict[str, Any]


def side_by_side(lanes: Sequence[Lane]) -> Iterator[str]:
    """One row for each span of the tree, one column for each rank; `!` is slow, `*` is the rank that ends last."""
    shown = sorted(sorted(lanes, key=lambda lane: -lane["duration_ms"])[:BESIDE], key=lambda lane: lane["rank"])
    if not shown:
        return
    rows = merged(shown)
    head = [f">r{lane['rank']}{'*' * lane['critical']}" for lane in shown]
    left = f" (the {BESIDE} slowest of {len(lanes)} ranks)" if len(lanes) > BESIDE else ""
    body = []
    for path, cells in rows.items():
        usual = next((cell["usual_ms"] for cell in cells.values() if cell["usual_ms"] is not None), None)
        took = [_cell(cells.get(lane["rank"])) for lane in shown]
        body.append(["  " * (len(path) - 1) + path[-1][0], *took, ms(usual)])
    yield ""
    yield from text.table((f"SPANS{left}", *head, ">USUAL"), body)


def merged(lanes: Sequence[Lane]) -> dict[tuple[tuple[str, int], ...], dict[int, dict[str, Any]]]:
    """The spans of all lanes by their place in the tree: names from the root down, counted where they repeat."""
    order: dict[tuple[tuple[str, int], ...], dict[int, dict[str, Any]]] = {}
    for lane in lanes:
        above: list[tuple[str, int]] = []
        seen: dict[tuple[tuple[tuple[str, int], ...], str], int] = {}
        for span in lane["spans"]:
            above = above[: span["depth"]]
            place = (tuple(above), span["name"])
            seen[place] = seen.get(place, 0) + 1
            above.append((span["name"], seen[place]))
            order.setdefault(tuple(above), {})[lane["rank"]] = span
    return dict(sorted(order.items(), key=lambda row: _first(row[0], order)))


def _first(path: tuple[tuple[str, int], ...], rows: dict[Any, dict[int, dict[str, Any]]]) -> list[Any]:
    """Where a row belongs: behind its parent, in the order in which spans began."""
    begins = []
    for depth in range(1, len(path) + 1):
        cells = rows.get(path[:depth], {})
        begins.append((min((cell["offset_ms"] for cell in cells.values()), default=0.0), path[depth - 1]))
    return begins


def _cell(span: dict[str, Any] | None) -> str:
    if span is None:
        return formatting.MISSING
    mark = "E" if span["status"] == "error" else "!" if span["slow"] else ""
    return ms(span["duration_ms"]) + mark


def critical_path(lanes: Sequence[Lane]) -> Iterator[str]:
    """What the end of the step waited for, on the rank that ends last."""
    for lane in lanes:
        if lane["critical"]:
            waited = [span for span in lane["spans"] if span["critical_ms"]]
            heavy = sorted(waited, key=lambda span: -span["critical_ms"])
            told = ", ".join(f"{span['name']} {ms(span['critical_ms'])}" for span in heavy[:PATH])
            if told:
                yield f"critical path of rank {lane['rank']}: {told}"
            return


def in_detail(lane: Lane) -> Iterator[str]:
    """One rank: when each span began, how long it took, how long is usual, how long all waited for it."""
    yield ""
    head = (f"SPANS OF RANK {lane['rank']}", ">AT", ">TOOK", ">USUAL", ">CRITICAL", "")
    yield from text.table(head, [_span(span) for span in lane["spans"]])


def _span(span: dict[str, Any]) -> list[str]:
    said = formatting.ratio(span["ratio"]) if span["slow"] else ""
    if span["status"] == "error":
        said = f"{said} ERROR {span['message']}".strip()
    times = [ms(span[field]) for field in ("offset_ms", "duration_ms", "usual_ms")]
    return ["  " * span["depth"] + span["name"], *times, ms(span["critical_ms"] or None), said]


def ms(milliseconds: float | None) -> str:
    """A duration."""
    return formatting.duration(None if milliseconds is None else milliseconds / 1e3)
