"""The spans of a step side by side: every rank in its column, whatever each of them did."""

import re
from typing import Any

from stepscope.cli.step import critical_path, merged, side_by_side


def span(name: str, depth: int, at: float, took: float, usual: float | None = 10.0) -> dict[str, Any]:
    """A span as the hub gives it."""
    return {
        "name": name, "depth": depth, "offset_ms": at, "duration_ms": took, "usual_ms": usual,
        "critical_ms": took, "ratio": None, "status": "unset", "message": "",
        "slow": int(bool(usual) and took >= 1.5 * usual),
    }  # fmt: skip


def lane(rank: int, *spans: dict[str, Any], critical: bool = False) -> dict[str, Any]:
    """The spans of a rank, which last as long as the first."""
    took = spans[0]["duration_ms"]
    return {"rank": rank, "critical": critical, "duration_ms": took, "offset_ms": 0.0, "spans": list(spans)}


def shown(lanes: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of the table."""
    return [re.split("  +", line.strip()) for line in side_by_side(lanes) if line]


def test_ranks_stand_beside_each_other_and_what_is_slow_is_marked() -> None:
    """A span that one rank does not have is a dash; the rank that ends last has a star."""
    lanes = [
        lane(0, span("step", 0, 0, 50), span("load", 1, 0, 40), span("eval", 1, 41, 5, None)),
        lane(1, span("step", 0, 0, 60), span("load", 1, 0, 10), critical=True),
    ]
    assert shown(lanes) == [
        ["SPANS", "r0", "r1*", "USUAL"],
        ["step", "50 ms!", "60 ms!", "10 ms"],
        ["load", "40 ms!", "10 ms", "10 ms"],
        ["eval", "5 ms", "–", "–"],
    ]
    assert list(critical_path(lanes)) == ["critical path of rank 1: step 60 ms, load 10 ms"]


def test_spans_that_repeat_keep_their_own_rows() -> None:
    """The second `load` of one rank is in the same row as the second of the other."""
    spans = (span("step", 0, 0, 9), span("load", 1, 1, 2), span("load", 1, 4, 3))
    rows = merged([lane(0, *spans), lane(1, *spans[:2])])
    assert [[path[-1], sorted(cells)] for path, cells in rows.items()] == [
        [("step", 1), [0, 1]],
        [("load", 1), [0, 1]],
        [("load", 2), [0]],
    ]


def test_of_many_ranks_the_slowest_are_shown() -> None:
    """The table notes that there are more ranks."""
    lanes = [lane(rank, span("step", 0, 0, 10 + rank), critical=rank == 19) for rank in range(20)]
    head, row = [line for line in side_by_side(lanes) if line]
    assert "the 8 slowest of 20 ranks" in head
    assert "22 ms!" in row
    assert "r12" in head
    assert "r19*" in head
    head, _ = [line for line in side_by_side(lanes[:10], 1024) if line]
    assert "the 8 slowest of 1024 ranks" in head
