"""Runs: the filtered and sorted table, one run, and the fields that a filter can use."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.hub.questions.runs import run_fields
from stepscope.hub.questions.runs.reducers import (
    MAX_STEPS,
    KeysByName,
    apart,
    value_of,
    with_columns,
    with_point_fields,
)
from stepscope.hub.questions.runs.run_fields import CursorError, duration
from stepscope.hub.questions.runs.run_filter import ExpressionError, fields_of, parse
from stepscope.hub.questions.runs.run_groups import GroupList, groups_json
from stepscope.hub.questions.series.metric_keys import compared_names, metric_names, resolve_names, visible_keys
from stepscope.hub.questions.toolbox.endpoint import RUN, Attrs, Endpoint, Param, Reader, seconds
from stepscope.hub.refusals import bad_request
from stepscope.hub.runs.run_states import RunStatus
from stepscope.hub.store.read.reductions import Budget, Reduced, TooManyPoints
from stepscope.hub.store.read.run_catalog import WriterRow, read_writers
from stepscope.hub.store.read.run_row import Latest, RunRow
from stepscope.hub.store.schema import ERA
from stepscope.model.last_value import MEANING
from stepscope.model.point_fields import GPU_FIELDS
from stepscope.model.records import Number, Seconds, word
from stepscope.model.states import State
from stepscope.wire.plain import plain


class Importing(TypedDict):
    """Progress of the import of journals."""

    bytes: int
    total: int


class ReducedJson(TypedDict):
    """A value that is computed from points."""

    key: str
    value: Number
    step: int | None
    unit: str


class LatestJson(TypedDict):
    """The last value of a metric; min, max and best are of all its finite values, best by its name."""

    key: str
    value: Number
    step: int | None
    time: Seconds
    ranks: Annotated[int, Meta(description="How many ranks it is of.")]
    unit: str
    min: float | None
    max: float | None
    best: float | None


class RunJson(TypedDict):
    """A run."""

    id: str
    place: Annotated[
        int, Meta(description="Its place among the runs that began in its week, which gives it its colour.")
    ]
    project: str
    name: str | None
    status: State
    importing: Importing | None
    step: int | None
    attempts: int
    ranks: int
    world_size: int
    hosts: Sequence[str]
    created: Seconds
    started: Seconds
    seen: Seconds
    duration: Annotated[float | None, Meta(description="Seconds from the start to the latest record.")]
    counts: Mapping[str, int]
    config: Attrs
    tags: Annotated[dict[str, Any], Meta(description="Tags by name; those without a value are true.")]
    notes: str
    group: str | None
    job_type: str | None
    parent: Annotated[str | None, Meta(description="The id of the run that it was forked from or continues.")]
    from_step: Annotated[int | None, Meta(description="The step of the parent at which it begins.")]
    archived: bool
    findings: int
    worst_finding: Annotated[str | None, Meta(description="The severity of its worst finding.")]
    values: Annotated[dict[str, LatestJson], Meta(description=f"The last values of metrics: {MEANING}.")]
    columns: Annotated[
        dict[str, ReducedJson],
        Meta(
            description="The values of `column` and of such fields in the filter and the order, by field; those of "
            "GPUs also of one run."
        ),
    ]


class RunPage(GroupList):
    """The runs that match a filter."""

    runs: list[RunJson]
    matched: int
    total: int
    archived: Annotated[int, Meta(description="How many runs are archived.")]
    next: Annotated[str | None, Meta(description="The `cursor` of the next page; null after the last.")]
    left_out: Annotated[
        dict[str, str], Meta(description="Why a `column` is missing in the runs: it reads too many points.")
    ]


class WriterJson(TypedDict):
    """A process of a run."""

    id: str
    attempt: int
    rank: int
    local_rank: int
    main: bool
    host: str
    pid: int
    started: Seconds
    seen: Seconds
    step: int | None
    counts: Mapping[str, int]
    resource: Attrs


class EndingJson(TypedDict):
    """How a process ended."""

    rank: int
    attempt: int
    time: Seconds
    status: str


class RunDetails(RunJson):
    """A run with its environment and its processes."""

    environment: Attrs
    writers: list[WriterJson]
    endings: list[EndingJson]


class FieldName(TypedDict):
    """A field, and how many runs have it."""

    name: str
    runs: int


class MetricName(FieldName):
    """A metric, and how many runs have it."""

    compared: Annotated[
        str, Meta(description="The name under which runs with other spellings of its category have it too.")
    ]


class FieldList(TypedDict):
    """The fields that runs can be filtered, sorted and grouped by."""

    plain: list[str]
    metrics: list[MetricName]
    config: list[FieldName]
    tags: list[FieldName]
    projects: list[str]
    home: Annotated[str | None, Meta(description="The home folder of the hub.")]


def run_json(row: RunRow, status: RunStatus, keys_by_name: KeysByName) -> RunJson:
    """A run as the table and its page show it, with the latest values of the named metrics."""
    config = row.beginning.get("config")
    return {
        "id": row.id,
        "place": row.number % ERA,
        "project": row.project,
        "name": row.name or None,
        "status": status.state,
        "importing": _importing(status),
        "step": row.step,
        "attempts": row.attempts,
        "ranks": row.ranks,
        "world_size": row.world_size,
        "hosts": row.hosts,
        "created": seconds(row.created),
        "started": seconds(row.started),
        "seen": seconds(row.seen),
        "duration": None if (lasted := duration(row)) is None else round(lasted, 6),
        "counts": row.counts,
        "config": plain(config) if isinstance(config, dict) else {},
        "tags": {name: plain(value) for name, value in row.tags.items()},
        "notes": row.notes,
        "group": row.group or None,
        "job_type": row.job_type or None,
        "parent": row.parent or None,
        "from_step": row.from_step,
        "archived": row.archived,
        "findings": row.findings,
        "worst_finding": row.worst_finding or None,
        "values": {
            name: _value_json(key, latest) for name, keys in keys_by_name.items() for key, latest in value_of(row, keys)
        },
        "columns": {field: _reduced_json(found) for field, found in row.reduced.items()},
    }


def _reduced_json(found: Reduced) -> ReducedJson:
    return {"key": found.key, "value": word(found.value), "step": found.step, "unit": found.unit}


def _value_json(key: str, latest: Latest) -> LatestJson:
    return {
        "key": key,
        "value": word(latest.value),
        "step": latest.step,
        "time": seconds(latest.time),
        "ranks": latest.ranks,
        "unit": latest.unit,
        "min": latest.low if math.isfinite(latest.low) else None,
        "max": latest.high if math.isfinite(latest.high) else None,
        "best": best if math.isfinite(best := run_fields.best_of(key, latest)) else None,
    }


def _importing(status: RunStatus) -> Importing | None:
    """Progress of the import of its journals; None when there is none, or no journal on this disk."""
    return {"bytes": status.read, "total": status.size} if status.size else None


def writer_json(row: WriterRow) -> WriterJson:
    """A process of a run."""
    who = row.writer
    return {
        "id": who.id,
        "attempt": who.attempt,
        "rank": who.rank,
        "local_rank": who.local_rank,
        "main": who.main,
        "host": who.host,
        "pid": who.pid,
        "started": seconds(row.started),
        "seen": seconds(row.seen),
        "step": row.step,
        "counts": row.counts,
        "resource": plain(who.resource),
    }


STARTED_WITH = ("config", "tags", "notes", "group", "job_type", "parent", "from_step")
"""Attributes of the start that are fields of a run, not of its environment."""


@Endpoint(
    "/api/runs",
    "listRuns",
    (
        Param(
            "filter",
            "text",
            "words to find in name, id, project or tags, or conditions: `status = running and metrics.loss < 0.5`",
        ),
        Param("sort", "text", "a field to sort by; `-` in front: the highest first", default="-started"),
        Param("metric", "text", "show the latest value of this metric", many=50),
        Param(
            "column",
            "text",
            f"show a value computed from points: `last10.KEY`, the mean of the last 10 steps (at most {MAX_STEPS}),"
            " `metrics.KEY@best.OTHER`, the value where another metric is best (or `@min.`, `@max.`), or what its"
            f" GPUs used: {', '.join(f'`{each}`' for each in GPU_FIELDS)}",
            many=20,
        ),
        Param(
            "archived",
            "choice",
            "hide or show archived runs, or only those",
            "hide",
            choices=("hide", "show", "only"),
        ),
        Param("group", "text", "a field: also return the groups of runs in which it is the same"),
        Param("limit", "integer", "at most this many", default=100, low=1, high=10_000),
        Param("cursor", "text", "`next` of the page before"),
    ),
)
def listing(reader: Reader, given: dict[str, Any]) -> RunPage:
    """The runs that match a filter, sorted, page by page."""
    sort: str = given["sort"]
    order = sort.removeprefix("-")
    try:
        wanted = parse(given["filter"] or "")
        columns = [run_fields.check_column(each) for each in given["column"]]
        by: str | None = given["group"]
        ordered = [run_fields.check_field(each, 0) for each in (order, *([] if by is None else [by]))]
        fields = [*run_fields.check(wanted), *ordered]
        metrics = list(dict.fromkeys([*run_fields.metrics_among([*fields, *columns]), *given["metric"]]))
        keys_by_name = resolve_names(reader, metrics)
        keys = [key for each in keys_by_name.values() for key in each]
        everything = reader.runs(keys=list(dict.fromkeys(keys)))
        status = reader.states.at_once()
        used = [*fields_of(wanted), *((field, 0) for field in ordered)]
        run_fields.check_present(used, everything, keys_by_name, lambda: visible_keys(reader))
        rows = _unarchived(everything, given["archived"], fields)
        found, budget = rows, Budget()
        for part in apart(wanted):
            dear = [field for field, _ in fields_of(part)]
            found = with_point_fields(reader.engine, found, dear, keys_by_name, budget)
            found = run_fields.select(found, part, status, keys_by_name)
        found = with_point_fields(reader.engine, found, ordered, keys_by_name, budget)
        groups: GroupList = {"groups": [], "group_count": 0}
        if by is not None and given["cursor"] is None:
            found, left_out = with_columns(reader.engine, found, columns, keys_by_name, budget)
            shown_fields = [*given["metric"], *(each for each in columns if each not in left_out)]
            groups = groups_json(found, by, shown_fields, sort, status, keys_by_name)
        page = run_fields.page(found, sort, given["cursor"], given["limit"], status, keys_by_name)
        ended = [row.id for row in page.rows if reader.states.ended_since(row)]
        newer = {row.id: row for row in reader.runs(ids=ended, keys=keys)} if ended else {}
        listed = [newer.get(row.id, row) for row in page.rows]
        shown, left_out = with_columns(reader.engine, listed, columns, keys_by_name, budget)
    except (ExpressionError, CursorError, TooManyPoints) as error:
        raise bad_request(str(error)) from None
    states = [status(row) for row in page.rows]
    return {
        "runs": [run_json(row, state, keys_by_name) for row, state in zip(shown, states, strict=True)],
        "matched": page.matched,
        "total": len(rows),
        "archived": sum(map(attrgetter("archived"), everything)),
        "next": page.following,
        "left_out": left_out,
        **groups,
    }


def _unarchived(rows: list[RunRow], archived: str, fields: list[str]) -> list[RunRow]:
    """Leave out archived runs, or all others, unless they are asked for or the filter names them."""
    if archived == "show" or (archived == "hide" and "archived" in fields):
        return rows
    return [row for row in rows if row.archived == (archived == "only")]


@Endpoint("/api/runs/{run}", "readRun", (RUN,))
def read_run(reader: Reader, given: dict[str, Any]) -> RunDetails:
    """One run: its configuration, environment, processes and endings."""
    row = reader.run(given["run"])
    status = reader.states.status(row)
    if reader.states.ended_since(row):
        row = reader.run(given["run"])  # the end in its state is stored, with all that came before it
    row = with_point_fields(reader.engine, [row], GPU_FIELDS, {}, Budget())[0]
    writers = read_writers(reader.engine, row.number)
    rest = {key: value for key, value in row.beginning.items() if key not in STARTED_WITH}
    return {
        **run_json(row, status, {}),
        "environment": plain(rest),
        "writers": [writer_json(writer) for writer in writers],
        "endings": [
            {"rank": end.rank, "attempt": end.attempt, "time": seconds(end.time), "status": end.status}
            for end in row.endings
        ],
    }


MAX_NAMES = 1000


@Endpoint(
    "/api/fields",
    "listFields",
    (
        Param("project", "text", "of the runs of this project only"),
        Param("run", "text", "of these runs only", many=200),
    ),
)
def fields(reader: Reader, given: dict[str, Any]) -> FieldList:
    """The fields that runs can be filtered, sorted and grouped by, and the home folder of the hub."""
    rows = [row for row in reader.runs(ids=given["run"] or None) if given["project"] in (None, row.project)]
    isolated = reader.project is not None or given["project"] is not None or given["run"]
    numbers = [row.number for row in rows] if isolated else None
    metrics = metric_names(reader.engine, numbers)
    compared = compared_names(reader.engine, metrics, numbers)
    config: Counter[str] = Counter()
    for settings, count in Counter(row.settings for row in rows).items():
        for path in settings:
            config[path] += count
    tags = Counter(name for row in rows for name in row.tags)
    return {
        "plain": list(run_fields.FIELDS),
        "metrics": [{"name": key, "compared": compared[key], "runs": n} for key, n in metrics.items()],
        "config": [{"name": name, "runs": n} for name, n in _most(config)],
        "tags": [{"name": name, "runs": n} for name, n in _most(tags)],
        "projects": sorted({row.project for row in rows}),
        "home": None if reader.project is not None or reader.home is None else str(reader.home),
    }


def _most(amounts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(amounts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_NAMES]
