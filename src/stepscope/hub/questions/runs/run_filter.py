"""The filter language of runs: words, or `status = running and (metrics.loss < 0.5 or name ~ "base")`."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from stepscope.model.errors import StepscopeError

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~"]
LONGEST = 4000
DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign><=|>=|!=|==|[<>=~(),])"""
    r"""|(?P<word>(?:[^\s()<>=!~,"'\\]|(?<=\.)"(?:[^"\\]|\\.)*")+)|(?P<odd>\S))""",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_KEYWORDS = ("and", "or", "not", "in")


class ExpressionError(StepscopeError, ValueError):
    """The expression cannot be parsed; `position` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.position = position


@dataclass(frozen=True, slots=True)
class Value:
    """What a field is compared with; `number` when the text is one and was not quoted."""

    text: str
    number: float | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """A field, an operator and a value."""

    field: str
    operator: Operator
    value: Value
    position: int = 0


@dataclass(frozen=True, slots=True)
class Among:
    """A field and the values it may have."""

    field: str
    values: tuple[Value, ...]
    position: int = 0


@dataclass(frozen=True, slots=True)
class Search:
    """A plain word, searched in the SEARCHED fields."""

    text: str
    position: int = 0


SEARCHED = ("name", "id", "project", "tags")
"""The fields in which a plain word is searched."""


@dataclass(frozen=True, slots=True)
class Not:
    """The negation."""

    inner: "Expression"


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of them hold; an empty one always holds."""

    parts: tuple["Expression", ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of them holds."""

    parts: tuple["Expression", ...]


Expression: TypeAlias = Compare | Among | Search | Not | AllOf | AnyOf


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse(text: str) -> Expression:
    """Parse an expression; an empty one matches every run. Raises nothing but ExpressionError."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has at most {LONGEST} characters", LONGEST)
    tokens = list(_tokens(text))
    if not tokens:
        return AllOf()
    reader = _Reader(tokens, len(text))
    found = reader.either(0)
    if (left := reader.peek()) is not None:
        raise ExpressionError(f"expected `and` or `or` before {left.text!r}", left.position)
    return found


def fields_of(expression: Expression) -> Iterator[tuple[str, int]]:
    """List the fields of an expression, each with its position."""
    if isinstance(expression, (Compare, Among)):
        yield expression.field, expression.position
    elif isinstance(expression, Search):
        yield from ((field, expression.position) for field in SEARCHED)
    elif isinstance(expression, Not):
        yield from fields_of(expression.inner)
    else:
        for part in expression.parts:
            yield from fields_of(part)


def words_of(expression: Expression) -> Iterator[Search]:
    """The plain words of an expression."""
    if isinstance(expression, Search):
        yield expression
    elif isinstance(expression, Not):
        yield from words_of(expression.inner)
    elif isinstance(expression, (AllOf, AnyOf)):
        for part in expression.parts:
            yield from words_of(part)


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        kind = found.lastgroup if found else None
        if found is None or kind is None or kind == "odd":
            position = found.start("odd") if found else at
            what = "this quote has no end" if text[position] in "\"'" else f"{text[position]!r} means nothing here"
            raise ExpressionError(what, position)
        yield _Token(kind, found[kind], found.start(kind))
        at = found.end()


class _Reader:
    """Reads tokens from left to right; `not` binds closest, then `and`, then `or`."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._end = end
        self._at = 0

    def peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def either(self, depth: int) -> Expression:
        parts = [self._both(depth)]
        while self._takes("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _both(self, depth: int) -> Expression:
        parts = [self._one(depth)]
        while self._takes("and") or (isinstance(parts[-1], Search) and self._starts_condition()):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _one(self, depth: int) -> Expression:
        token = self._next("a field, `not` or `(`")
        if depth > DEEPEST:
            raise ExpressionError(f"nested more than {DEEPEST} deep", token.position)
        if _is(token, "not"):
            return Not(self._one(depth + 1))
        if token.kind == "sign" and token.text == "(":
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        if token.kind == "quoted":
            return Search(_unquoted(token.text), token.position)
        if token.kind != "word" or token.text.lower() in _KEYWORDS:
            raise ExpressionError(f"expected a field, `not` or `(`, not {token.text!r}", token.position)
        return Search(token.text, token.position) if self._is_alone() else self._condition(token)

    def _is_alone(self) -> bool:
        """Whether no operator follows, so that the word just read is one to search for."""
        token = self.peek()
        if token is None or token.kind == "quoted":
            return True
        if token.kind == "sign":
            return token.text in "()"
        return token.text.lower() not in ("in", "not")

    def _starts_condition(self) -> bool:
        token = self.peek()
        return token is not None and not (token.kind == "sign" and token.text != "(") and not _is(token, "or")

    def _condition(self, field: _Token) -> Expression:
        name = re.sub(r'"((?:[^"\\]|\\.)*)"', lambda quoted: _unquoted(quoted[0]), field.text)
        token = self._next(f"an operator after {field.text!r}")
        if _is(token, "not"):
            if not self._takes("in"):
                raise ExpressionError("expected `in` after `not`", token.position)
            return Not(self._among(name, field.position))
        if _is(token, "in"):
            return self._among(name, field.position)
        operator = "=" if token.text == "==" else token.text
        if token.kind != "sign" or operator not in get_args(Operator):
            known = " ".join(get_args(Operator))
            raise ExpressionError(f"expected one of {known} or `in`, not {token.text!r}", token.position)
        return Compare(name, cast(Operator, operator), self._value(), field.position)

    def _among(self, name: str, position: int) -> Among:
        self._expect("(")
        values = [self._value()]
        while (token := self._next("`,` or `)`")).text == "," and token.kind == "sign":
            values.append(self._value())
        if token.kind != "sign" or token.text != ")":
            raise ExpressionError(f"expected `,` or `)`, not {token.text!r}", token.position)
        return Among(name, tuple(values), position)

    def _value(self) -> Value:
        token = self._next("a value")
        if token.kind == "quoted":
            return Value(_unquoted(token.text))
        if token.kind != "word":
            raise ExpressionError(f"expected a value, not {token.text!r}", token.position)
        return Value(token.text, _number(token.text))

    def _next(self, wanted: str) -> _Token:
        token = self.peek()
        if token is None:
            raise ExpressionError(f"expected {wanted} at the end", self._end)
        self._at += 1
        return token

    def _takes(self, keyword: str) -> bool:
        token = self.peek()
        if token is None or not _is(token, keyword):
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        token = self._next(f"`{sign}`")
        if token.kind != "sign" or token.text != sign:
            raise ExpressionError(f"expected `{sign}`, not {token.text!r}", token.position)


def _is(token: _Token, keyword: str) -> bool:
    return token.kind == "word" and token.text.lower() == keyword


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _number(text: str) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


Look = Callable[[str], Any]
"""Returns the value of a field, None when it is missing."""


def holds(expression: Expression, look: Look) -> bool:
    """Whether an expression holds; a missing field equals nothing and has no order."""
    if isinstance(expression, Compare):
        return _compare(look(expression.field), expression)
    if isinstance(expression, Among):
        found = look(expression.field)
        return any(_equal(found, value) for value in expression.values)
    if isinstance(expression, Search):
        return any(_contains(look(field), expression.text.lower()) for field in SEARCHED)
    if isinstance(expression, Not):
        return not holds(expression.inner, look)
    if isinstance(expression, AllOf):
        return all(holds(part, look) for part in expression.parts)
    assert isinstance(expression, AnyOf)
    return any(holds(part, look) for part in expression.parts)


def _contains(found: Any, text: str) -> bool:
    if isinstance(found, (list, tuple)):
        return any(_contains(each, text) for each in found)
    return found is not None and text in str(found).lower()


def _compare(found: Any, wanted: Compare) -> bool:
    operator, value = wanted.operator, wanted.value
    if operator == "=":
        return _equal(found, value)
    if operator == "!=":
        return not _equal(found, value)
    if found is None:
        return False
    if operator == "~":
        return value.text.lower() in str(found).lower()
    order = _order(found, value)
    if order is None:
        return False
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _equal(found: Any, value: Value) -> bool:
    if found is None:
        return value.text.lower() in ("none", "null")
    if isinstance(found, bool):
        return value.text.lower() == str(found).lower()
    if isinstance(found, (int, float)):
        if value.number is None:
            return False
        return found == value.number or (math.isnan(found) and math.isnan(value.number))
    if isinstance(found, (list, tuple)):
        return any(_equal(each, value) for each in found)
    return str(found) == value.text


def _order(found: Any, value: Value) -> int | None:
    """-1, 0 or 1 as a value is less than, equal to or greater than another; None when they have no order."""
    if isinstance(found, (int, float)):
        if value.number is None or math.isnan(found) or math.isnan(value.number):
            return None
        return (found > value.number) - (found < value.number)
    if isinstance(found, str):
        return (found > value.text) - (found < value.text)
    return None
