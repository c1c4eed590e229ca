"""Run filters in MongoDB's syntax, and run orders, as in W&B's public API."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepscope.dialects.wandb.receiver.graphql import GraphQLError

Fields = Mapping[str, Any]
"""The filterable fields of a run: state, display_name, tags, config, summary_metrics and so on."""
DEEPEST = 20
LONGEST_PATTERN, MAX_STEPS = 500, 1_000_000
"""Characters of a pattern, and steps of one search, which holds the interpreter: about 10 ms."""
_ESCAPED = re.compile(r"\\[^0-9]|\[\^?\]?(?:\\.|[^\]\\])*\]")
"""An escaped character or a character class, which matches one character."""
_UNSAFE = re.compile(r"\)[*+?{]|\(\?|\\[0-9]|[*+?}][*+{]|\{\d*,?\d{4}")
"""Constructs that can take long: repeated groups, extensions, backreferences, nested repetitions, large counts."""
_REPEATS = re.compile(r"([*+?|]|\{\d*,?(\d*)\})")
_ABSENT = object()
_NAMES = {
    "displayName": "display_name",
    "jobType": "job_type",
    "createdAt": "created_at",
    "summaryMetrics": "summary_metrics",
    "heartbeatAt": "heartbeat_at",
    "historyLineCount": "history_line_count",
}


def matches(filters: Any, fields: Fields, depth: int = 0, check: Callable[[], None] = lambda: None) -> bool:
    """Return whether a run matches; GraphQLError for an invalid filter. `check` is called for each condition."""
    if filters in (None, "", {}):
        return True
    if not isinstance(filters, Mapping) or depth > DEEPEST:
        raise GraphQLError("filters must be a JSON object that is not too deep")
    return all(_one(key, wanted, fields, depth, check) for key, wanted in filters.items())


def _one(key: str, wanted: Any, fields: Fields, depth: int, check: Callable[[], None]) -> bool:
    check()
    if key in ("$and", "$or", "$nor"):
        if not isinstance(wanted, Sequence) or isinstance(wanted, str):
            raise GraphQLError(f"{key} needs a list")
        found = [matches(each, fields, depth + 1, check) for each in wanted]
        return all(found) if key == "$and" else any(found) if key == "$or" else not any(found)
    if key == "$not":
        return not matches(wanted, fields, depth + 1, check)
    return _fits(look_up(key, fields), wanted, depth)


def _fits(value: Any, wanted: Any, depth: int) -> bool:
    """Return whether a value equals another, or satisfies all operators."""
    if not isinstance(wanted, Mapping) or not any(str(name).startswith("$") for name in wanted):
        return _equal(value, wanted)
    if depth > DEEPEST:
        raise GraphQLError("filters must be a JSON object that is not too deep")
    return all(
        not _fits(value, each, depth + 1) if name == "$not" else _compare(str(name), value, each)
        for name, each in wanted.items()
    )


def look_up(key: str, fields: Fields) -> Any:
    """Return the value of a dotted key; `.value` is optional in keys of the configuration."""
    first, _, rest = key.partition(".")
    value: Any = fields.get(_NAMES.get(first, first), _ABSENT)
    if not rest:
        return value
    if isinstance(value, Mapping) and rest in value:
        return value[rest]
    for part in rest.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif part != "value":
            return _ABSENT
    return value


def _equal(value: Any, wanted: Any) -> bool:
    if value is _ABSENT:
        return wanted is None
    return bool(value == wanted) or (isinstance(value, (list, tuple)) and wanted in value)


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda value, wanted: bool(value > wanted),
    "$gte": lambda value, wanted: bool(value >= wanted),
    "$lt": lambda value, wanted: bool(value < wanted),
    "$lte": lambda value, wanted: bool(value <= wanted),
}


def _compare(name: str, value: Any, wanted: Any) -> bool:
    if name in ("$eq", "$ne"):
        return _equal(value, wanted) == (name == "$eq")
    if name in ("$in", "$nin"):
        listed = wanted if isinstance(wanted, list) else [wanted]
        return any(_equal(value, each) for each in listed) == (name == "$in")
    if name == "$all":
        return isinstance(wanted, list) and bool(wanted) and all(_equal(value, each) for each in wanted)
    if name == "$exists":
        return (value is not _ABSENT) == bool(wanted)
    if name == "$regex":
        return isinstance(value, str) and _search(str(wanted), value)
    if name not in _ORDERS:
        raise GraphQLError(f"unknown operator {name[:40]!r}")
    try:
        return value is not _ABSENT and value is not None and _ORDERS[name](value, wanted)
    except TypeError:
        return False


def _search(pattern: str, text: str) -> bool:
    """Search for a regular expression; GraphQLError for one that could take long."""
    plain = _ESCAPED.sub("x", pattern[:LONGEST_PATTERN])
    if len(pattern) > LONGEST_PATTERN or _UNSAFE.search(plain) or _steps(plain, len(text)) > MAX_STEPS:
        raise GraphQLError(f"the pattern {pattern[:80]!r} is too complex for this hub")
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError):
        raise GraphQLError(f"{pattern[:80]!r} is not a regular expression") from None


def _steps(pattern: str, size: int) -> int:
    """Return the largest number of steps of a search in a text of a size; repetitions and alternatives multiply it."""
    steps = size + 1
    for sign, most in _REPEATS.findall(pattern):
        steps *= 2 if sign in "?|" else int(most) if most else size + 1
    return steps


def sort_key(order: str) -> tuple[Callable[[Fields], tuple[bool, str, Any]], bool]:
    """Return a sort key and whether to reverse, for an order such as `-created_at` or `+summary_metrics.loss`."""
    down, key = order.startswith("-"), order.lstrip("+-")

    def value_of(fields: Fields) -> tuple[bool, str, Any]:
        value = look_up(key, fields)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or value != value:
            return (not down, "", 0)
        return (down, "" if isinstance(value, (int, float)) else "text", value)

    return value_of, down


def read_filters(text: Any) -> Any:
    """Parse the filters of a request: JSON text or nothing."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise GraphQLError("filters must be JSON") from None
