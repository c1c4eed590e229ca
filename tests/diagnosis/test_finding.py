"""Findings speak of numbers and durations as page and terminal show them."""

import pytest

from stepscope.diagnosis import finding
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.findings_json import band_words
from stepscope.model import formatting


@pytest.mark.parametrize("value", [7.68e10, 123456.0, 3e-4, -2.5e-300, 0.5, float("inf")])
def test_sentences_have_the_numbers_of_the_page(value: float) -> None:
    """A value has the same text in the sentence, the expected band and the column."""
    assert finding.number(value) == formatting.number(value)
    assert band_words(Finding("spike", "WARN", "", expected=(value, value))) == f"Expected {formatting.number(value)}"


@pytest.mark.parametrize(("value", "text"), [(0.5043, "504 ms"), (74.2, "1m 14s"), (7300.0, "2h 01m"), (2e-6, "2 µs")])
def test_sentences_have_the_durations_of_the_page(value: float, text: str) -> None:
    """A duration has the same text everywhere."""
    assert finding.seconds(value) == text == formatting.duration(value)
