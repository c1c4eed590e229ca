"""The checkpoints of a run, with the metrics at their steps, the best of them, and those that attempts loaded."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.hub.questions.runs.run_fields import is_higher_better
from stepscope.hub.questions.series.metric_keys import MAX_NAMES, find_metrics, metric_names
from stepscope.hub.questions.toolbox.endpoint import RUN, Attrs, Endpoint, Param, Reader, seconds
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.log_rows import LifeEvent, read_life_events
from stepscope.hub.store.read.run_catalog import SeriesRow
from stepscope.hub.store.schema import NO_STEP
from stepscope.journal.key_summary import leading
from stepscope.model import names
from stepscope.model.records import Number, Seconds, word
from stepscope.wire.plain import plain

MAX_EVENTS = 20_000
MAX_CHECKPOINTS = 200
"""The most checkpoints in one answer: all points of a metric are compared with their steps."""
MAX_KEYS, DEFAULT_KEYS = 16, 4
MAX_SERIES = 256
"""The most series of a metric that are read; of more ranks, the first ones."""
_EVENTS = (names.EVENT_CHECKPOINT, names.EVENT_CHECKPOINT_MEASURED, names.EVENT_CHECKPOINT_LOADED)
_OWN = frozenset(("path", "id", "step", "seconds", "bytes", "files", "manifest", "content", "complete"))
_Values = dict[str, dict[int, dict[int, list[float]]]]
"""The values of metrics by key, attempt and step, one of each rank."""


class _Saved(msgspec.Struct):
    """One checkpoint: what its ranks recorded at one path and step in one attempt."""

    path: str
    step: int | None
    attempt: int
    events: list[LifeEvent]
    measured: list[LifeEvent] = []
    version: int = 1
    replaced: bool = False

    @property
    def order(self) -> tuple[int, int, int]:
        return self.attempt, max(event.time for event in self.events), -1 if self.step is None else self.step

    @property
    def id(self) -> str:
        return str(self.events[0].attrs.get("id", "")) or f"{self.attempt}-{self.step}-{self.events[0].time}"


class ValueAt(TypedDict):
    """The value of a metric at a step, or the last before it: the mean of the ranks."""

    step: int
    value: Number


class CheckpointJson(TypedDict):
    """A checkpoint: what its ranks recorded at one path and step in one attempt."""

    id: str
    path: str
    step: int | None
    attempt: int
    ranks: Annotated[int, Meta(description="How many recorded it.")]
    time: Seconds
    seconds: Annotated[float | None, Meta(description="How long saving it took.")]
    bytes: int | None
    files: int | None
    manifest: str | None
    content: str | None
    complete: bool | None
    version: Annotated[int, Meta(description="The how-manieth it is that was saved at its path.")]
    replaced: Annotated[bool, Meta(description="Whether a later one was saved at its path, so that it is gone.")]
    attrs: Attrs
    values: dict[str, ValueAt]


class BestCheckpoint(TypedDict):
    """The best checkpoint of those in the answer, by one metric."""

    key: str
    id: str
    step: int | None
    path: str
    value: float
    higher: Annotated[bool, Meta(description="Whether high values are better.")]


class LoadedCheckpoint(TypedDict):
    """A checkpoint that an attempt continued from."""

    attempt: int
    rank: int
    time: Seconds
    path: str
    step: int | None
    checkpoint: Annotated[str | None, Meta(description="Which of this run it is.")]


class CheckpointList(TypedDict):
    """The checkpoints of a run, the newest first."""

    keys: list[str]
    checkpoints: list[CheckpointJson]
    total: int
    replaced: Annotated[int, Meta(description="How many of these are replaced.")]
    best: BestCheckpoint | None
    loaded: list[LoadedCheckpoint]


@Endpoint(
    "/api/runs/{run}/checkpoints",
    "listCheckpoints",
    (
        RUN,
        Param("key", "text", "a metric to show; without one, the most important ones", many=MAX_KEYS),
        Param("best", "text", "the metric that decides which checkpoint is the best; without it, the first shown"),
        Param(
            "limit",
            "integer",
            "at most this many, the newest; those that are not replaced first",
            100,
            low=1,
            high=MAX_CHECKPOINTS,
        ),
    ),
)
def checkpoints(reader: Reader, given: dict[str, Any]) -> CheckpointList:
    """The checkpoints of a run, the newest first, with metrics at their steps, the best one, and those loaded."""
    run = reader.number(given["run"])
    events = read_life_events(reader.engine, run, _EVENTS, MAX_EVENTS)
    found = _saved(events)
    shown = sorted(found, key=lambda each: each.replaced)[: given["limit"]]
    shown.sort(key=lambda each: each.order, reverse=True)
    keys, catalog = _metrics(reader.engine, run, given["key"], given["best"])
    values = _read_values(reader.engine, catalog, [each.step for each in shown if each.step is not None])
    rows = [_checkpoint_json(each, keys, values) for each in shown]
    wanted = None if not keys else keys[-1] if given["best"] else keys[0]
    return {
        "keys": keys,
        "checkpoints": rows,
        "total": len(found),
        "replaced": sum(each.replaced for each in found),
        "best": None if wanted is None else _best(wanted, rows),
        "loaded": [_loaded_json(each, found) for each in events if each.name == names.EVENT_CHECKPOINT_LOADED],
    }


def _saved(events: Iterable[LifeEvent]) -> list[_Saved]:
    """The checkpoints, the newest first; ranks that name the same path at the same step saved one together."""
    found: dict[tuple[int, str, int | None], _Saved] = {}
    measured: dict[tuple[int, str, int | None], list[LifeEvent]] = {}
    for event in events:
        place = (event.attempt, event.text("path"), event.step)
        if event.name == names.EVENT_CHECKPOINT:
            found.setdefault(place, _Saved(event.text("path"), event.step, event.attempt, [])).events.append(event)
        elif event.name == names.EVENT_CHECKPOINT_MEASURED:
            measured.setdefault(place, []).append(event)
    for place, each in found.items():
        each.measured = measured.get(place, [])
    ordered = sorted(found.values(), key=lambda each: each.order)
    newest: dict[str, _Saved] = {}
    for each in ordered:
        if (before := newest.get(each.path)) is not None:
            before.replaced, each.version = True, before.version + 1
        newest[each.path] = each
    return ordered[::-1]


def _metrics(
    engine: Engine, run: int, wanted: Sequence[str], best: str | None
) -> tuple[list[str], dict[int, SeriesRow]]:
    """The metrics to show, that of `best` last, and their series; without any, the most important ones of the run."""
    named = [*wanted, *([best] if best else [])]
    if not wanted:
        known = [key for key in metric_names(engine, [run], MAX_NAMES) if not key.startswith(("system/", "stepscope/"))]
        named = [*leading(known, DEFAULT_KEYS), *named]
    if not named:
        return [], {}
    keys, catalog = find_metrics(engine, run, named)
    if best:
        (last,), _ = find_metrics(engine, run, [best])
        keys = [*(key for key in keys if key != last), last]
    return keys, catalog


def _read_values(engine: Engine, catalog: Mapping[int, SeriesRow], steps: Sequence[int]) -> _Values:
    """The last values of series at or before each of some steps."""
    chosen: dict[int, SeriesRow] = {}
    for key in {row.key for row in catalog.values()}:
        mine = [row for row in catalog.values() if row.key == key]
        plain_axis = [row for row in mine if not row.axis]
        first = sorted(plain_axis or mine, key=lambda row: (row.rank, row.number))[:MAX_SERIES]
        chosen |= {row.number: row for row in first}
    ends = sorted(set(steps))
    if not chosen or not ends:
        return {}
    listed = ", ".join(f"toInt64({step})" for step in ends)
    found = engine.query(
        f"""SELECT series, attempt, arrayFirstIndex(each -> each >= step, [{listed}]) AS place, max(step) AS at,
            argMax(value, (step, time)) AS last
        FROM metrics WHERE series IN {literal.integers(chosen)} AND step > {NO_STEP} AND step <= {ends[-1]}
        GROUP BY series, attempt, place"""
    )
    values: _Values = {}
    for series, attempt, at, last in found.rows("series", "attempt", "at", "last"):
        of_key = values.setdefault(chosen[series].key, {})
        of_key.setdefault(attempt, {}).setdefault(at, []).append(last)
    return values


def _value_at(by_attempt: Mapping[int, Mapping[int, list[float]]], attempt: int, step: int) -> tuple[int, float] | None:
    """The value at a step in an attempt, else the last before it there or in an earlier one: the mean of its ranks."""
    for each in sorted((each for each in by_attempt if each <= attempt), reverse=True):
        steps = sorted(by_attempt[each])
        place = bisect_right(steps, step)
        if place:
            found = by_attempt[each][steps[place - 1]]
            return steps[place - 1], sum(found) / len(found)
    return None


def _checkpoint_json(saved: _Saved, keys: Sequence[str], values: _Values) -> CheckpointJson:
    first, shown = saved.events[-1], dict[str, ValueAt]()
    for key in keys:
        found = None if saved.step is None else _value_at(values.get(key, {}), saved.attempt, saved.step)
        if found is not None:
            shown[key] = {"step": found[0], "value": word(found[1])}
    lasted = [each for event in saved.events if isinstance(each := event.attrs.get("seconds"), int | float)]
    sizes = [each for event in saved.measured if (each := event.integer("bytes")) is not None]
    newest = saved.measured[0] if saved.measured else None
    return {
        "id": saved.id,
        "path": saved.path,
        "step": saved.step,
        "attempt": saved.attempt,
        "ranks": len({event.rank for event in saved.events}),
        "time": seconds(max(event.time for event in saved.events)),
        "seconds": max(lasted, default=None),
        "bytes": max(sizes, default=None),
        "files": None if newest is None else newest.integer("files"),
        "manifest": None if newest is None else str(newest.attrs.get("manifest", "")),
        "content": None if newest is None else str(newest.attrs.get("content", "")) or None,
        "complete": None if newest is None else newest.attrs.get("complete") is True,
        "version": saved.version,
        "replaced": saved.replaced,
        "attrs": plain({name: value for name, value in first.attrs.items() if name not in _OWN}),
        "values": shown,
    }


def _best(key: str, rows: Sequence[CheckpointJson]) -> BestCheckpoint | None:
    """The checkpoint with the best value of a metric, of those that are there; of equal ones the newest."""
    higher = is_higher_better(key)
    finite = [
        (row, value)
        for row in rows
        if not row["replaced"]
        and key in row["values"]
        and isinstance(value := row["values"][key]["value"], int | float)
        and math.isfinite(value)
    ]
    if not finite:
        return None
    row, value = (max if higher else min)(finite, key=lambda each: each[1])
    return {"key": key, "id": row["id"], "step": row["step"], "path": row["path"], "value": value, "higher": higher}


def _loaded_json(event: LifeEvent, saved: Iterable[_Saved]) -> LoadedCheckpoint:
    """The checkpoint that an attempt continued from, and which of this run it is."""
    earlier = [each for each in saved if each.path == event.text("path") and each.events[-1].time <= event.time]
    return {
        "attempt": event.attempt,
        "rank": event.rank,
        "time": seconds(event.time),
        "path": event.text("path"),
        "step": event.step if event.step is not None else earlier[0].step if earlier else None,
        "checkpoint": earlier[0].id if earlier else None,
    }
