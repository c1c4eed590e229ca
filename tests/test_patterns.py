"""Expressions on text of clients take linear time: no parameter, line or filter can hold up a hub."""

import random
from collections.abc import Callable

import pytest

from stepscope.alerts.rule_replay import _TOKEN
from stepscope.dialects.datadog.wire.dogstatsd_lines import read_check
from stepscope.dialects.wandb.receiver import run_filters
from stepscope.dialects.wandb.receiver.graphql import GraphQLError
from stepscope.hub.questions.runs import run_filter
from stepscope.hub.questions.runs.run_fields import _AMOUNT
from stepscope.hub.questions.runs.run_filter import _NUMBER as FILTER_NUMBER
from stepscope.hub.questions.toolbox.endpoint import _NUMBER as PARAM_NUMBER
from stepscope.wire.otlp.decode import json_request
from stepscope.wire.otlp.replies import BadRequest
from tests.expressions import Used, expressions
from tests.pattern_pumps import SUFFIXES, is_linear, pairs, pumps, seconds

BOUNDED = {
    "stepscope.hub.questions.runs.run_filter:": run_filter.LONGEST,
    "stepscope.dialects.wandb.receiver.run_filters._ESCAPED": run_filters.LONGEST_PATTERN,
    "stepscope.dialects.wandb.receiver.run_filters._REPEATS": run_filters.LONGEST_PATTERN,
}
"""Expressions that need not be linear, and the characters of their longest texts."""
MAX_TURNS = 2_000
"""CPU time for each character of such a text, in turns of an empty loop: a slow machine is slow at both."""
TRIED = 20
"""Repetitions for each use of an expression."""
USES = [each for each in expressions() if ".cli." not in each.place and "model.redaction" not in each.place]
"""Those of commands read what their user wrote; those of masking have a test of their own."""
TURNS = 100_000
DIGITS = [PARAM_NUMBER, FILTER_NUMBER, _AMOUNT, _TOKEN]


def turns(_: str) -> None:
    """Do nothing so many times."""
    for _turn in range(TURNS):
        pass


def bound(longest: int) -> float:
    """The CPU time that a text of so many characters may take."""
    return MAX_TURNS * longest * seconds(turns, "") / TURNS


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
    chance = random.Random(used.place)
    longest = next((most for place, most in BOUNDED.items() if used.place.startswith(place)), None)
    found = [*pumps(used.pattern, rounds=2), *(("", each) for each in pairs(used.pattern))]
    for begin, piece in chance.sample(found, min(len(found), TRIED)):
        suffix = chance.choice(SUFFIXES)
        if longest is None:
            assert is_linear(used.run, begin, piece, suffix), (begin, piece, suffix)
        else:
            text = (begin + piece * longest)[: longest - len(suffix)] + suffix
            assert seconds(used.run, text) < bound(longest), text[:100]


@pytest.mark.parametrize(
    ("refuse", "longest", "error"),
    [
        (run_filter.parse, run_filter.LONGEST, run_filter.ExpressionError),
        (lambda text: run_filters._search(text, ""), run_filters.LONGEST_PATTERN, GraphQLError),
    ],
)
@pytest.mark.parametrize("piece", ["a", '"', '."\\"', "[", "\\", "{7"])
def test_a_longer_text_is_refused_at_once(
    refuse: Callable[[str], object], longest: int, error: type[Exception], piece: str
) -> None:
    """The bounds above hold where such texts come in: what is longer is refused without reading all of it."""
    text = (piece * 1_000_000)[:1_000_000]

    def refused() -> None:
        with pytest.raises(error):
            refuse(text)

    refused()
    with pytest.raises(error):
        refuse(text[: longest + 1])
    assert seconds(lambda _: refused(), "") < bound(longest)


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
