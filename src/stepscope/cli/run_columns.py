"""Columns of the list of runs: fields of the API, among them the last, lowest, highest and best value of a metric."""

import difflib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stepscope.cli import text
from stepscope.cli.run_text import flatten
from stepscope.model import formatting
from stepscope.model.point_fields import point_field
from stepscope.model.run_description import tag_text

ALIASES = {"run": "id", "host": "hosts", "state": "status", "tag": "tags", "note": "notes"}
OF_METRIC = {"metrics": "value", "min": "min", "max": "max", "best": "best"}
"""The fields of a metric, and what the API calls them."""
_OPEN = tuple(f"{name}." for name in (*OF_METRIC, "config", "tag", "tags"))
_TIMES = ("created", "started", "seen")


def field(name: str, plain: Collection[str]) -> str:
    """The field that a name stands for: one of the API's, else the last value of a metric of that name."""
    known = name in plain or name in ALIASES or name.startswith(_OPEN) or is_of_points(name)
    return ALIASES.get(name, name) if known else f"metrics.{name}"


def is_of_points(field: str) -> bool:
    """Whether a field is computed from points: `last10.KEY` or `metrics.KEY@best.OTHER`."""
    return point_field(field) is not None


def metrics_among(fields: Sequence[str]) -> list[str]:
    """The metrics whose last or extreme value some fields are."""
    parts = (each.partition(".") for each in fields if not is_of_points(each))
    return list(dict.fromkeys(name for kind, dot, name in parts if dot and kind in OF_METRIC))


def value(row: Mapping[str, Any], field: str) -> Any:
    """The value of a field in an answer of `/api/runs`; None where the run has none."""
    kind, dot, name = field.partition(".")
    if is_of_points(field):
        return row["columns"].get(field, {}).get("value")
    if dot and kind in OF_METRIC:
        return row["values"].get(name, {}).get(OF_METRIC[kind])
    if dot and kind == "config":
        return row["config"][name] if name in row["config"] else dict(flatten(row["config"])).get(name)
    if dot and kind in ("tag", "tags"):
        return row["tags"].get(name)
    return row["counts"].get(field, 0) if field in row["counts"] or field not in row else row[field]


def shown(row: Mapping[str, Any], field: str) -> str:
    """The value of a field as text."""
    found = value(row, field)
    kind, dot, name = field.partition(".")
    if found is None or found in ("", [], {}):
        return formatting.MISSING
    if dot and (kind in OF_METRIC or is_of_points(field)):
        of = row["columns"][field] if is_of_points(field) else row["values"][name]
        return text.value_of(of["key"], found, of["unit"])
    if field in _TIMES:
        return short_moment(int(found * 1e9))
    if field == "duration":
        return formatting.duration(found)
    if field == "tags":
        return " ".join(tag_text(*tag) for tag in found.items())
    if isinstance(found, list):
        return ", ".join(map(str, found))
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return text.number(found) if is_number else str(found)


def headings(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Headings of columns, those of numbers aligned to the right."""
    marks = [">" if all(_is_number(row[at]) for row in cells) else "" for at in range(len(names))]
    return [mark + text.clean(name) for mark, name in zip(marks, names, strict=True)]


def _is_number(cell: str) -> bool:
    return cell == formatting.MISSING or cell[:1] in "+-.!0123456789"


def nowhere(fields: Sequence[str], rows: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> list[str]:
    """What to say about fields that no listed run has: the nearest that others have."""
    said = []
    for each in fields if rows else ():
        kind, dot, name = each.partition(".")
        if not dot or any(value(row, each) is not None for row in rows):
            continue
        among = [one["name"] for one in known[kind if kind in ("config", "tags") else "metrics"]]
        near = difflib.get_close_matches(name, among, n=1, cutoff=0.5)
        said.append(f"no run listed has {each}" + "".join(f"; did you mean {kind}.{one}?" for one in near))
    return said


def short_moment(ns: int | None) -> str:
    """The time of day for today, else the date."""
    if not ns:
        return "-"
    then, today = time.localtime(ns / 1e9), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d", then)
