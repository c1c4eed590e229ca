"""Expressions of metrics: `{val/loss} - {train/loss}`, parsed in one pass and evaluated on arrays."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stepscope.model.errors import StepscopeError

LONGEST = 1000
DEEPEST = 50
MAX_METRICS = 10
Values = npt.NDArray[np.float64]
_TOKEN = re.compile(
    r"\s*(?:\{(?P<braced>[^{}]+)\}|`(?P<quoted>[^`]+)`|(?P<number>(?:\d++\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[^\W\d][\w.]*)|(?P<sign>[-+*/^(),])|(?P<odd>\S))"
)
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "log": np.log, "log2": np.log2, "log10": np.log10, "exp": np.exp, "sqrt": np.sqrt, "abs": np.abs
}  # fmt: skip
_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "^": np.power
}  # fmt: skip
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 4}
_NEGATION = 3
"""Binds closer than a product and less than a power: -a^2 is -(a^2)."""


class BadExpression(StepscopeError, ValueError):
    """The expression cannot be parsed; the message has the place."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class MetricExpression(NamedTuple):
    """A parsed expression: its metrics in the order in which they occur, and the steps of a stack machine."""

    metrics: tuple[str, ...]
    program: tuple[tuple[str, Any], ...]

    def evaluate(self, values: Mapping[str, Values]) -> Values:
        """The value at each place, from those of each metric there; NaN and infinities where it has no number."""
        stack: list[Any] = []
        with np.errstate(all="ignore"):
            for kind, what in self.program:
                if kind == "number":
                    stack.append(np.float64(what))
                elif kind == "metric":
                    stack.append(values[what])
                elif kind == "call":
                    stack.append(what(stack.pop()))
                else:
                    right = stack.pop()
                    stack.append(what(stack.pop(), right))
        made: Values = np.asarray(stack[0], "f8")
        return made


def parse_expression(text: str) -> MetricExpression:
    """Parse an expression; BadExpression when it is wrong, has no metric, or is too long or deep."""
    if len(text) > LONGEST:
        raise BadExpression(f"an expression of metrics has at most {LONGEST} characters", LONGEST)
    reader = _Reader(text)
    reader.sum(0, 0)
    if (left := reader.peek()) is not None:
        raise BadExpression(f"expected + - * / ^ or the end before {left.text!r}{_hint(left)}", left.position)
    metrics = tuple(dict.fromkeys(what for kind, what in reader.program if kind == "metric"))
    if not metrics:
        raise BadExpression("an expression needs a metric: write {train/loss} - {val/loss}", 0)
    if len(metrics) > MAX_METRICS:
        raise BadExpression(f"an expression has at most {MAX_METRICS} metrics, not {len(metrics)}", 0)
    return MetricExpression(metrics, tuple(reader.program))


def _hint(token: _Token) -> str:
    return "; names with other signs are written in braces: {my metric}" if token.kind == "name" else ""


def _tokens(text: str) -> list[_Token]:
    made = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        kind = found.lastgroup if found else None
        if found is None or kind is None:
            raise BadExpression("this means nothing here", at)
        if kind == "odd":
            what = "this has no end" if found[kind] in "{`" else "means nothing here"
            raise BadExpression(f"{found[kind]!r} {what}", found.start(kind))
        made.append(_Token(kind, found[kind], found.start(kind)))
        at = found.end()
    return made


class _Reader:
    """Reads tokens from left to right and writes the program: operands before their operator."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._end = len(text)
        self._at = 0
        self.program: list[tuple[str, Any]] = []

    def peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def sum(self, least: int, depth: int) -> None:
        """Read operands and the signs between them that bind at least so closely."""
        if depth > DEEPEST:
            raise BadExpression(f"parentheses are nested at most {DEEPEST} deep", self._position())
        self._operand(depth)
        while (sign := self.peek()) is not None and _BINDS.get(sign.text, -1) >= least and sign.kind == "sign":
            self._at += 1
            # A power takes what is right of it first, the others what is left.
            self.sum(_BINDS[sign.text] + (sign.text != "^"), depth + 1)
            self.program.append(("sign", _SIGNS[sign.text]))

    def _operand(self, depth: int) -> None:
        token = self.peek()
        if token is None:
            raise BadExpression("expected a metric or a number at the end", self._end)
        self._at += 1
        if token.kind == "number":
            self.program.append(("number", float(token.text)))
        elif token.kind in ("braced", "quoted"):
            self.program.append(("metric", token.text.strip()))
        elif token.kind == "name":
            self._named(token, depth)
        elif token.text == "(":
            self._inside(token, depth)
        elif token.text in "+-":
            self.sum(_NEGATION, depth + 1)
            if token.text == "-":
                self.program.append(("call", np.negative))
        else:
            raise BadExpression(f"expected a metric or a number before {token.text!r}", token.position)

    def _named(self, token: _Token, depth: int) -> None:
        """A metric, or a function where a parenthesis follows."""
        following = self.peek()
        if following is None or following.text != "(":
            self.program.append(("metric", token.text))
            return
        if token.text not in FUNCTIONS:
            raise BadExpression(f"there is no function {token.text!r}, only {', '.join(FUNCTIONS)}", token.position)
        self._at += 1
        self._inside(following, depth)
        self.program.append(("call", FUNCTIONS[token.text]))

    def _inside(self, opening: _Token, depth: int) -> None:
        self.sum(0, depth + 1)
        closing = self.peek()
        if closing is None:
            raise BadExpression("this parenthesis has no end", opening.position)
        if closing.text != ")":
            raise BadExpression(f"expected + - * / ^ or ) before {closing.text!r}{_hint(closing)}", closing.position)
        self._at += 1

    def _position(self) -> int:
        token = self.peek()
        return self._end if token is None else token.position
