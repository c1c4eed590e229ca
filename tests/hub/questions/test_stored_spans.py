"""Spans, searched over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.hub.questions.conftest import Get
from tests.hub.questions.world import FAILED, SPIKE, trace_of


def test_failed_spans(get: Get) -> None:
    """Spans are found by status, with their message."""
    for params in ({"error": "true"}, {"status": "error"}):
        (span,) = get("/api/spans", run="big", **params)["spans"]
        assert (span["step"], span["rank"], span["message"]) == (FAILED, 0, "out of memory")


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"step": SPIKE, "min_ms": 850}, 2),
        ({"attr.request_id": "r7", "name": "train.step"}, 2),
        ({"attr[request_id]": "r7", "attr.batch": "7", "rank": 1}, 3),
        ({"attr.batch": "8", "attr.request_id": "r7"}, 0),
        ({"trace_id": trace_of(3, 1).hex()}, 3),
    ],
)
def test_spans_by_anything(get: Get, params: dict[str, Any], count: int) -> None:
    """Step, name, duration, trace and any attribute narrow the search."""
    assert len(get("/api/spans", run="big", **params)["spans"]) == count


def test_pages_of_spans(get: Get) -> None:
    """`next` is the offset of the next page."""
    first = get("/api/spans", run="big", limit=2, sort="slowest")
    assert [span["duration_ms"] for span in first["spans"]] == [900.0, 900.0]
    assert first["next"] == 2
    assert get("/api/spans", run="big", limit=1000, offset=700)["next"] is None


def test_attributes_that_are_asked_for_are_few(ask: Callable[..., Any]) -> None:
    """A request for thousands of attributes is refused before the store is asked."""
    many = "&".join(f"attr.k{number}=v" for number in range(33))
    refused = ask("GET", f"/api/spans?{many}")
    assert refused.status_code == 400
    assert "32 times" in refused.json()["error"]["message"]
    assert ask("GET", f"/api/spans?{many.rpartition('&')[0]}").status_code == 200
