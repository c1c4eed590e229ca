"""Groups of runs: those with the same value of a field, with mean and spread of what they have; and projects."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.diagnosis.finding import SEVERITIES
from stepscope.hub.questions.runs.reducers import KeysByName, value_of
from stepscope.hub.questions.runs.run_fields import COUNTS, NUMBERS, TIMES, StatusOf, getter, metrics_of
from stepscope.hub.questions.toolbox.endpoint import Endpoint, Reader, seconds
from stepscope.hub.store.read.run_row import RunRow
from stepscope.model.point_fields import point_field
from stepscope.model.records import Seconds
from stepscope.wire.plain import dumps, plain

MAX_GROUPS = 1000
_OF_RUN = ("step", "duration", "findings", "alerts", "ranks", "attempts", "points")
"""Numbers that every run has, besides its metrics."""
_OF_METRIC = ("metrics", "min", "max", "best")


class Statistics(TypedDict):
    """Finite numbers of some runs: the standard deviation is over runs, null for one."""

    mean: float
    std: float | None
    min: float
    max: float
    runs: int


class ColumnStatistics(Statistics):
    """A column of a group of runs."""

    key: str
    unit: str


class GroupJson(TypedDict):
    """A group of runs."""

    shared: Annotated[Any, Meta(description="What its runs have in common; null for those without the field.")]
    runs: int
    columns: dict[str, ColumnStatistics]


class GroupList(TypedDict):
    """Groups of runs."""

    groups: Annotated[
        list[GroupJson],
        Meta(
            description=f"With `group`, on the first page: the groups of all matching runs, at most {MAX_GROUPS}; "
            "mean, standard deviation and extremes over their runs of the metrics and columns asked for, and of "
            f"{', '.join(f'`{each}`' for each in _OF_RUN)}. `runs` of a column is how many have a finite value."
        ),
    ]
    group_count: Annotated[int, Meta(description="How many groups there are.")]


class ProjectJson(TypedDict):
    """A project: its runs, those that are running and those with findings."""

    project: str
    runs: int
    running: int
    findings: int
    worst: Annotated[str | None, Meta(description="The severity of the worst finding.")]
    seen: Seconds


class ProjectList(TypedDict):
    """The projects, the one with the latest record first."""

    projects: list[ProjectJson]


def groups_json(
    rows: Sequence[RunRow],
    by: str,
    shown: Iterable[str],
    sort: str,
    state: StatusOf,
    keys_by_name: KeysByName,
) -> GroupList:
    """The groups of runs in the order of a field, at most MAX_GROUPS, with statistics of the metrics and columns shown.

    Numbers sort by the mean of a group, times by its latest, anything else by the value that the group has in common.
    """
    look = getter(by, state, keys_by_name)
    members: dict[str, list[RunRow]] = {}
    values: dict[str, Any] = {}
    for row in rows:
        value = plain(look(row))
        name = dumps(value)
        members.setdefault(name, []).append(row)
        values[name] = value
    ordered = _ordered(members, values, sort, state, keys_by_name)
    fields = _fields(shown)
    getters = {field: getter(field, state, keys_by_name) for field in fields}
    return {
        "groups": [
            {
                "shared": values[name],
                "runs": len(members[name]),
                "columns": {
                    field: _column(found, members[name], field, keys_by_name)
                    for field, get in getters.items()
                    if (found := statistics(map(get, members[name]))) is not None
                },
            }
            for name in ordered[:MAX_GROUPS]
        ],
        "group_count": len(members),
    }


def _fields(shown: Iterable[str]) -> list[str]:
    """The fields whose statistics are shown: of metrics the last value and the extremes, and what every run has."""
    made = list(_OF_RUN)
    for name in shown:
        made += [name] if point_field(name) is not None else [f"{kind}.{name}" for kind in _OF_METRIC]
    return list(dict.fromkeys(made))


def statistics(values: Iterable[Any]) -> Statistics | None:
    """Mean, standard deviation over runs (None for one) and extremes of the finite numbers; None without any."""
    found = [number for each in values if (number := _number(each)) is not None]
    if not found:
        return None
    count, low, high = len(found), min(found), max(found)
    mean = min(max(math.fsum(each / count for each in found), low), high)  # equal values have their own mean
    spread = math.hypot(*(each - mean for each in found)) / math.sqrt(count - 1) if count > 1 else math.nan
    return {"mean": mean, "std": spread if math.isfinite(spread) else None, "min": low, "max": high, "runs": count}


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _column(found: Statistics, rows: Sequence[RunRow], field: str, keys_by_name: KeysByName) -> ColumnStatistics:
    key, unit = _unit(rows, field, keys_by_name)
    return {**found, "key": key, "unit": unit}


def _unit(rows: Sequence[RunRow], field: str, keys_by_name: KeysByName) -> tuple[str, str]:
    """The key and unit of the first run that has a metric; the field itself for anything else."""
    for row in rows:
        if (reduced := row.reduced.get(field)) is not None:
            return reduced.key, reduced.unit
        for _, name in metrics_of(field):
            for key, latest in value_of(row, keys_by_name.get(name, ())):
                return key, latest.unit
    return field, ""


def _ordered(
    members: Mapping[str, Sequence[RunRow]],
    values: Mapping[str, Any],
    sort: str,
    state: StatusOf,
    keys_by_name: KeysByName,
) -> list[str]:
    """The names of the groups in order; those without a value come last."""
    field = sort.removeprefix("-")
    look = getter(field, state, keys_by_name)
    present: list[tuple[int, Any, str]] = []
    absent: list[str] = []
    for name, rows in members.items():
        found = statistics(map(look, rows))
        if found is not None:
            present.append((0, found["max"] if field in TIMES else found["mean"], name))
        elif field not in NUMBERS and values[name] is not None and not metrics_of(field):
            present.append(_by_value(values[name], name))
        else:
            absent.append(name)
    present.sort(reverse=sort.startswith("-"))
    return [*(name for *_, name in present), *sorted(absent)]


def _by_value(value: Any, name: str) -> tuple[int, Any, str]:
    number = _number(value)
    return (1, str(value), name) if number is None else (0, number, name)


assert set(_OF_RUN) - {"duration"} <= {*NUMBERS, *COUNTS}


def _severity(word: str) -> int:
    """The rank of a severity, the worst first."""
    return [str(each) for each in SEVERITIES].index(word)


@Endpoint("/api/projects", "listProjects")
def projects(reader: Reader, given: dict[str, Any]) -> ProjectList:
    """The projects with the number of their runs, of those that are running and of those with findings, the one with
    the latest record first. Archived runs do not count.
    """
    by_project: dict[str, list[RunRow]] = {}
    for row in reader.runs():
        if not row.archived:
            by_project.setdefault(row.project, []).append(row)
    status = reader.states.at_once()
    made: list[ProjectJson] = [
        {
            "project": project,
            "runs": len(rows),
            "running": sum(status(row).state == "running" for row in rows),
            "findings": sum(row.findings > 0 for row in rows),
            "worst": min((row.worst_finding for row in rows if row.worst_finding), key=_severity, default=None),
            "seen": seconds(max(row.seen for row in rows)),
        }
        for project, rows in by_project.items()
    ]
    return {"projects": sorted(made, key=lambda each: (-(each["seen"] or 0.0), each["project"]))}
