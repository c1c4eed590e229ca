"""Counters of outcomes, by receiver and reason."""

import pytest

from stepscope.hub.intake import counters
from stepscope.hub.intake.counters import OTHER, Counters, Label


def test_reasons_are_bounded_and_every_record_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason may quote what a client sent; a hub would keep it for good, and list it in each answer to Prometheus."""
    monkeypatch.setattr(counters, "MAX_LABELS", 5)
    counting = Counters()
    for number in range(50):
        counting.add("rejected", "otlp", 2, f"invalid at position {number}")
    counting.add("rejected", "otlp", 3, "invalid at position 0")
    counting.add("stored", "otlp", 7)
    found = counting.snapshot()
    assert len(found) == 7
    assert (found[Label("rejected", "otlp", "invalid at position 0")], found[Label("rejected", "otlp", OTHER)]) == (
        5,
        90,
    )
    assert (counting.total("rejected"), counting.total("stored")) == (103, 7)
