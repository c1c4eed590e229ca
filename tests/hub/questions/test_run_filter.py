"""The language that picks runs: what it accepts, what it means, and that it never fails but in its own words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.questions.runs.run_filter import (
    AllOf,
    Among,
    AnyOf,
    Compare,
    ExpressionError,
    Not,
    Search,
    Value,
    fields_of,
    holds,
    parse,
)

ROW = {
    "name": "base-1",
    "status": "running",
    "step": 10,
    "loss": 0.25,
    "bad": math.nan,
    "up": math.inf,
    "on": True,
    "hosts": ["a", "b"],
    'metrics.odd "key"': 1.0,
}


def holds_for(text: str) -> bool:
    """Tell whether an expression holds for the row above."""
    return holds(parse(text), ROW.get)


def test_and_binds_closer_than_or() -> None:
    """`a or b and c` is `a or (b and c)`, and `not` binds closest."""
    found = parse("a = 1 or not b = 2 and c = x")
    assert isinstance(found, AnyOf)
    first, second = found.parts
    assert first == Compare("a", "=", Value("1", 1.0), 0)
    assert isinstance(second, AllOf)
    assert isinstance(second.parts[0], Not)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "status = running and loss < 0.5 and step >= 1e1",
        'name ~ "BASE" and not (status = failed or status in (crashed, "stalled"))',
        "status IN (running, failed) AND step NOT IN (1, 2)",
        "bad = NaN and up = inf and up > 1e300 and not up = -inf",
        "on = true and hosts = a and hosts != c",
        "missing = none and not missing < 5 and missing != 3",
        "name = 'base-1' and name > aaa and status == running",
        r'metrics."odd \"key\"" = 1',
    ],
)
def test_holds(text: str) -> None:
    """Each of these is true of the row."""
    assert holds_for(text)


@pytest.mark.parametrize("text", ["loss = bad", "bad < 1", "bad > 1", "name < 3", "missing ~ x", "step = '10x'"])
def test_does_not_hold(text: str) -> None:
    """Values of different kinds are not equal and have no order, and NaN has none."""
    assert not holds_for(text)


@pytest.mark.parametrize(
    ("text", "position", "word"),
    [
        ("status =", 8, "a value"),
        ("status , running", 7, "expected one of"),
        ("(a = 1", 6, "`)`"),
        ("a = 1 b = 2", 6, "`and` or `or`"),
        ('a = "x', 4, "no end"),
        ("a in 1", 5, "`(`"),
        ("a in (1", 7, "`,` or `)`"),
        ("and", 0, "a field"),
        ("a ! b", 2, "means nothing"),
        ("a not 1", 2, "`in`"),
        ("(" * 60 + "a = 1", 51, "deep"),
    ],
)
def test_says_where_it_is_wrong(text: str, position: int, word: str) -> None:
    """An error names what was expected and the character."""
    with pytest.raises(ExpressionError, match=f"at character {position + 1}") as raised:
        parse(text)
    assert raised.value.position == position
    assert word in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base", True),
        ("BASE-1", True),
        ("gpt base", True),
        ('"base-1" and gpt', True),
        ("base status = running", True),
        ("not other", True),
        ("nightly", True),
        ('"team=red"', True),
        ("other or 0f3a", True),
        ("(base or other) and step = 10", True),
        ("other", False),
        ("base other", False),
        ("base status = failed", False),
    ],
)
def test_a_plain_word_is_searched(text: str, expected: bool) -> None:
    """In name, id, project and tags, without regard to case; several words must all be found."""
    named = {**ROW, "id": "0f3a", "project": "gpt", "tags": ["nightly", "team=red"]}
    assert holds(parse(text), named.get) is expected


def test_a_plain_word_is_no_field() -> None:
    """A word is what is searched for; two of them are two searches."""
    assert parse("a b") == AllOf((Search("a", 0), Search("b", 2)))


def test_names_its_fields() -> None:
    """The fields of an expression can be looked up before it is used."""
    found = parse("a = 1 and (not b in (1, 2) or c ~ x)")
    assert [name for name, _ in fields_of(found)] == ["a", "b", "c"]
    assert isinstance(parse("b in (1,2)"), Among)


_PIECES = st.sampled_from(
    ["and", "or", "not", "in", "(", ")", ",", "=", "!=", "<", "~", "name", "step", "1e5", "nan", '"x"', "'", "\\", "."]
)


@given(st.one_of(st.text(), st.lists(_PIECES).map(" ".join), st.lists(_PIECES).map("".join)))
def test_raises_nothing_else(text: str) -> None:
    """Whatever comes in, the answer is an expression or an ExpressionError inside the text."""
    position = 0
    try:
        assert holds(parse(text), ROW.get) in (True, False)
    except ExpressionError as error:
        position = error.position
    assert 0 <= position <= len(text)
