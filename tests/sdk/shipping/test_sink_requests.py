"""What a trainer leaves for the shipper: the sinks of a run with their options and filters."""

from pathlib import Path

from stepscope.sdk.shipping.sink_requests import forget, list_requests, register
from stepscope.sinks.registry import parse


def test_sinks_come_back_as_they_were_chosen(tmp_path: Path) -> None:
    """With their options, what is left out by default, and what a person chose instead."""
    given = ["hub", {"otlp": {"endpoint": "http://c:4318"}}, {"mlflow": {"include": ["trainer/*", "kind:span"]}}]
    sinks = parse([*given, {"tinker": {"url": "http://t", "exclude": []}}], {})
    register(tmp_path, "run-1", "host", sinks)
    (found,) = list_requests(tmp_path, "host")
    assert found.sinks == sinks
    assert [bool(each.filter) for each in found.sinks] == [False, True, True, True, False]
    forget(tmp_path, "run-1", "host")
    assert list_requests(tmp_path) == []
