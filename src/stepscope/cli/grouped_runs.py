"""Rows of `stepscope runs --group`: each group of runs with the mean and the spread of its columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.cli import text
from stepscope.model import formatting

_WIDEST = 40


def lines(answer: Mapping[str, Any], by: str, columns: Sequence[str], most: int) -> list[str]:
    """The groups of an answer of `/api/runs` as a table, with `mean ± standard deviation` in each column."""
    shown = answer["groups"][:most]
    head = [by, ">RUNS", *(f">{text.clean(each.removeprefix('metrics.'))}" for each in columns)]
    rows = [
        [_name(group["shared"]), formatting.count(group["runs"]), *(_cell(group, field) for field in columns)]
        for group in shown
    ]
    made = text.table(head, rows, limits={by: _WIDEST})
    left = answer["group_count"] - len(shown)
    return [*made, *(["", f"{len(shown)} of {answer['group_count']} groups shown"] if left else [])]


def _name(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or formatting.MISSING
    return formatting.MISSING if value is None else text.number(value) if isinstance(value, float) else str(value)


def _cell(group: Mapping[str, Any], field: str) -> str:
    """The mean and spread of a column; how many of the runs they are of, where some have no finite value."""
    found = group["columns"].get(field)
    if found is None:
        return formatting.MISSING
    part = "" if found["runs"] == group["runs"] else f" of {found['runs']}"
    spread = "" if found["std"] is None else f" ± {_value(found, found['std'], field)}"
    return f"{_value(found, found['mean'], field)}{spread}{part}"


def _value(found: Mapping[str, Any], value: float, field: str) -> str:
    return formatting.duration(value) if field == "duration" else text.value_of(found["key"], value, found["unit"])
