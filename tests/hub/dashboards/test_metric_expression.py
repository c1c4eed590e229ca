"""Expressions of metrics: what they mean, and what is said about wrong ones."""

import math

import numpy as np
import pytest

from stepscope.hub.dashboards.metric_expression import DEEPEST, LONGEST, BadExpression, parse_expression

VALUES = {"a": np.array([1.0, 4.0]), "b": np.array([2.0, 0.0]), "val/loss": np.array([3.0, 5.0])}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [1, 4]),
        ("a - b - 1", [-2, 3]),
        ("a - (b - 1)", [0, 5]),
        ("2 * a + b / 4", [2.5, 8]),
        ("{val/loss} / `a`", [3, 1.25]),
        ("-a ^ 2", [-1, -16]),
        ("2 ^ -a", [0.5, 0.0625]),
        ("2 ^ 2 ^ b", [16, 2]),
        ("-(-a)", [1, 4]),
        ("log2(a) + log10(100) - exp(0) + sqrt(a) + abs(-b)", [4, 5]),
        ("log({val/loss} * 1e0)", [math.log(3), math.log(5)]),
        (".5*a", [0.5, 2]),
    ],
)
def test_value(text: str, expected: list[float]) -> None:
    """Signs bind as in mathematics; names with other signs are in braces or backquotes."""
    assert parse_expression(text).evaluate(VALUES).tolist() == pytest.approx(expected)


def test_what_is_no_number() -> None:
    """A division by zero is infinite, and the logarithm of a negative number is none."""
    assert parse_expression("a / b").evaluate(VALUES).tolist() == [0.5, math.inf]
    assert np.isnan(parse_expression("log(-a)").evaluate(VALUES)).all()


def test_metrics_are_named_once() -> None:
    """The metrics that are read, in the order in which they occur."""
    assert parse_expression("{val/loss} - a + {val/loss} * b").metrics == ("val/loss", "a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a metric or a number at the end (at character 1)"),
        ("a -", "expected a metric or a number at the end (at character 4)"),
        ("a * / b", "expected a metric or a number before '/' (at character 5)"),
        ("my loss", "expected + - * / ^ or the end before 'loss'; names with other signs are written in braces"),
        ("(a b)", "expected + - * / ^ or ) before 'b'"),
        ("(a", "this parenthesis has no end (at character 1)"),
        ("a)", "expected + - * / ^ or the end before ')'"),
        ("{a - b", "'{' this has no end (at character 1)"),
        ("a # b", "'#' means nothing here (at character 3)"),
        ("sin(a)", "there is no function 'sin', only log, log2, log10, exp, sqrt, abs"),
        ("1 + 2", "an expression needs a metric"),
        (" + ".join(f"m{number}" for number in range(11)), "at most 10 metrics, not 11"),
        ("(" * 60 + "a" + ")" * 60, f"nested at most {DEEPEST} deep"),
        ("-" * 900 + "a", f"nested at most {DEEPEST} deep"),
        ("a" * (LONGEST + 1), f"at most {LONGEST} characters"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    """What is wrong is said in words, with its place."""
    with pytest.raises(BadExpression) as caught:
        parse_expression(text)
    assert message in str(caught.value)


def test_a_long_sum_is_not_deep() -> None:
    """Operands beside each other are no nesting."""
    text = "+".join(["a"] * 400)
    assert parse_expression(text).evaluate(VALUES).tolist() == [400, 1600]
