"""Expressions on text of clients take linear time: no parameter, line or filter can hold up a hub."""

import random
from collections.abc import Callable

import pytest

from stepscope.alerts.rule_replay import _TOKEN
from stepscope.dialects.datadog.wire.dogstatsd_lines import read_check
from stepscope.hub.questions.runs.run_fields import _AMOUNT
from stepscope.hub.questions.runs.run_filter import _NUMBER as FILTER_NUMBER
from stepscope.hub.questions.toolbox.params import _NUMBER as PARAM_NUMBER
from stepscope.wire.otlp.decode import json_request
from stepscope.wire.otlp.replies import BadRequest
from tests.expressions import Used, expressions
from tests.pattern_pumps import SUFFIXES, is_linear, pairs, pumps

BOUNDED = {
    "stepscope.hub.questions.runs.run_filter:": "a filter has 4,000 characters at most",
    "stepscope.hub.questions.sql.sql_check._NODE": "a statement has 20,000 characters at most",
    "stepscope.dialects.wandb.receiver.run_filters._ESCAPED": "a pattern has 500 characters at most",
    "stepscope.dialects.wandb.receiver.run_filters._REPEATS": "a pattern has 500 characters at most",
}
"""Expressions whose texts are short."""
TRIED = 20
"""Repetitions for each use of an expression."""
USES = [each for each in expressions() if ".cli." not in each.place and "secret_text" not in each.place]
"""Those of commands read what their user wrote; those of masking have a test of their own."""
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


@pytest.mark.parametrize("used", USES, ids=lambda each: f"{each.place.removeprefix('stepscope.')}-{each.method}")
def test_no_repetition_holds_up_a_hub(used: Used) -> None:
    """Four times the text takes about four times the CPU time, for each expression as the package uses it."""
    if used.place.startswith(tuple(BOUNDED)):
        return
    chance = random.Random(used.place)
    found = [*pumps(used.pattern, rounds=2), *(("", each) for each in pairs(used.pattern))]
    for begin, piece in chance.sample(found, min(len(found), TRIED)):
        suffix = chance.choice(SUFFIXES)
        assert is_linear(used.run, begin, piece, suffix), (begin, piece, suffix)


def test_a_text_of_json_that_does_not_end_is_read_once() -> None:
    """A body that is not JSON, with a text full of escaped quotes that is not closed, is refused after one reading."""

    def parse(body: str) -> None:
        with pytest.raises(BadRequest):
            json_request.parse(body.encode())

    assert is_linear(parse, '{"a": NaN, "b": "' + "a" * json_request.PART_BYTES, '\\"', "")
    assert json_request.parse(b'{"a": NaN, "b": "\\ud800\\""}' + b" " * json_request.PART_BYTES) == {
        "a": "NaN",
        "b": '\ufffd"',
    }
