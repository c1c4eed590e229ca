"""Whether an expression holds for something with named fields."""

import math
from collections.abc import Callable
from typing import Any

from stepscope.hub.questions.expression import SEARCHED, AllOf, Among, AnyOf, Compare, Expression, Not, Search, Value

Look = Callable[[str], Any]
"""The value of a field; None when it is not there."""


def holds(expression: Expression, look: Look) -> bool:
    """Tell whether an expression holds; a field that is not there equals nothing and has no order."""
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
    """Negative, zero or positive as a value found lies before, at or after another; None without an order."""
    if isinstance(found, (int, float)):
        if value.number is None or math.isnan(found) or math.isnan(value.number):
            return None
        return (found > value.number) - (found < value.number)
    if isinstance(found, str):
        return (found > value.text) - (found < value.text)
    return None
