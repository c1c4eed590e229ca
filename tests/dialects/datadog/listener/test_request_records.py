"""Requests of the intake as records: what they cost."""

import json
import time
from collections.abc import Callable

import pytest

from stepscope.dialects.datadog.receiver.request_records import RequestRecords, Steps
from stepscope.dialects.datadog.wire.dogstatsd_lines import MAX_TAGS
from stepscope.dialects.datadog.wire.requests import Reading, read_json, read_logs, read_series
from stepscope.dialects.datadog.wire.tags import place_of

T = 1_700_000_000


def sort(reading: Reading) -> int:
    """Convert what was read; the number of records."""
    return sum(len(group.records) for group in RequestRecords(Steps()).sort(reading.items))


def series(points: int, tags: list[str]) -> int:
    """Convert one series."""
    body = {"series": [{"metric": "m", "points": [[T + n, 1.0] for n in range(points)], "tags": tags}]}
    return sort(read_series(read_json(json.dumps(body).encode())))


def logs(count: int, tags: str) -> int:
    """Convert texts that share the tags of the query."""
    return sort(read_logs(["line"] * count, {"ddtags": tags}, lambda: T))


COSTS: dict[str, Callable[[], int]] = {
    "one tag, again and again": lambda: series(1, ["a:1"] * 400_000),
    "many points with many tags of one key": lambda: series(50_000, [f"a:{n}" for n in range(MAX_TAGS)]),
    "many logs with many tags in the query": lambda: logs(20_000, ",".join(["a:1"] * 4000)),
}


@pytest.mark.parametrize("shape", COSTS)
def test_a_request_costs_no_more_than_its_bytes(shape: str) -> None:
    """Neither repeated tags nor points times tags take more than a few seconds of processor time."""
    began = time.thread_time()
    assert COSTS[shape]()
    assert time.thread_time() - began < 4


def test_many_values_of_one_tag_cost_no_more_than_their_number() -> None:
    """Twice the values take about twice the time: the list is appended to, not copied."""
    began = time.thread_time()
    assert len(place_of([f"a:{n}" for n in range(160_000)]).attrs["a"]) == 160_000
    assert time.thread_time() - began < 2
