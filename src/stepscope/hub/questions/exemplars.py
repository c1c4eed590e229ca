"""Exemplars of a metric: single measurements with the spans in which they were made."""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from msgspec import Struct

from stepscope.hub.questions.conditions import newest, pages
from stepscope.hub.questions.endpoint import LIMIT, METRIC, RANK_ONLY, RUN, SINCE, UNTIL, Endpoint, Reader, nanoseconds
from stepscope.hub.questions.schemas import (
    ATTRS,
    INTEGER,
    NUMBER,
    SECONDS,
    STEP,
    TEXT,
    list_of,
    nullable,
    object_of,
    seconds,
)
from stepscope.hub.store import attrs, exact
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.series_catalog import SeriesRow, find_series
from stepscope.model.records import Attrs
from stepscope.wire.plain import plain


class ExemplarRow(Struct, frozen=True):
    """One exemplar, with the step and the series of its point; ids are None where it has none."""

    series: SeriesRow
    attempt: int
    step: int | None
    time: int
    value: int | float
    trace_id: bytes | None
    span_id: bytes | None
    attrs: Attrs


def every_exemplar(
    engine: Engine, run: int, *, keys: Collection[str] = (), rank: int | None = None
) -> Iterator[list[ExemplarRow]]:
    """Yield the exemplars of a run page by page, by series and time."""
    catalog = find_series(engine, run, keys=keys, rank=rank)
    return pages(partial(_read, engine, catalog), catalog, "series, time, span_id")


def _read(engine: Engine, catalog: dict[int, SeriesRow], rest: str) -> list[ExemplarRow]:
    columns = (
        *("series", "attempt", "step", "time", "value", "rest"),
        *("trace_id", "span_id", "attr_names", "attr_values", "attr_types"),
    )
    found = engine.query(f"SELECT {', '.join(columns)} FROM exemplars {rest}")
    return [
        ExemplarRow(
            catalog[series],
            attempt,
            step_of(step),
            time,
            exact.whole(value, off),
            trace if any(trace) else None,
            span if any(span) else None,
            attrs.restore(names, values, types),
        )
        for series, attempt, step, time, value, off, trace, span, names, values, types in found.rows(*columns)
    ]


def exemplars(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/exemplars`."""
    catalog = find_series(reader.engine, reader.number(given["run"]), key=given["key"], rank=given["rank"])
    since, until = nanoseconds(given["since"]), nanoseconds(given["until"])
    found = newest(partial(_read, reader.engine, catalog), catalog, since, until, given["limit"])
    return {"run": given["run"], "key": given["key"], "exemplars": [_json(row) for row in found]}


def _json(row: ExemplarRow) -> dict[str, Any]:
    return {
        "rank": row.series.rank,
        "series": plain(row.series.attrs),
        "scope": row.series.scope,
        "attempt": row.attempt,
        "step": row.step,
        "time": seconds(row.time),
        "value": plain(row.value),
        "trace_id": row.trace_id.hex() if row.trace_id else None,
        "span_id": row.span_id.hex() if row.span_id else None,
        "attrs": plain(row.attrs),
    }


_EXEMPLAR = object_of(
    rank=INTEGER, series=ATTRS, scope=TEXT, attempt=INTEGER, step=STEP, time=SECONDS, value=NUMBER,
    trace_id=nullable(TEXT), span_id=nullable(TEXT), attrs=ATTRS,
)  # fmt: skip

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/exemplars",
        "readExemplars",
        "Exemplars of a metric: single measurements with their spans, the newest first.",
        exemplars,
        object_of(run=TEXT, key=TEXT, exemplars=list_of(_EXEMPLAR)),
        (RUN, METRIC, RANK_ONLY, SINCE, UNTIL, LIMIT),
    ),
)
