"""Expressions on text of clients take linear time: no parameter, line or filter can hold up a hub."""

from collections.abc import Callable

import pytest

from stepscope.alerts.rule_replay import _TOKEN
from stepscope.dialects.datadog.wire.dogstatsd_lines import read_check
from stepscope.hub.questions.runs.run_fields import _AMOUNT
from stepscope.hub.questions.runs.run_filter import _NUMBER as FILTER_NUMBER
from stepscope.hub.questions.toolbox.params import _NUMBER as PARAM_NUMBER
from tests.pattern_pumps import is_linear, pumps

DIGITS = [PARAM_NUMBER, FILTER_NUMBER, _AMOUNT, _TOKEN]


@pytest.mark.parametrize("pattern", DIGITS, ids=lambda each: each.pattern[:24])
def test_a_number_is_read_once(pattern: "object") -> None:
    """A long number with a wrong end is refused after one reading, and so is what else the pattern accepts."""
    match: Callable[[str], object] = pattern.fullmatch  # type: ignore[attr-defined]
    assert is_linear(match, "", "7", "!")
    for begin, piece in pumps(pattern, rounds=2):  # type: ignore[arg-type]
        assert is_linear(match, begin, piece, "!"), (begin, piece)


@pytest.mark.parametrize("suffix", ["", "|z"])
def test_the_fields_after_a_message_are_read_once(suffix: str) -> None:
    """A service check whose message has thousands of fields is read in one pass."""
    assert is_linear(lambda text: read_check(f"_sc|name|0|m:{text}", 1), "a", "|c:", suffix)
