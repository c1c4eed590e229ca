"""Endpoints of distributions: a metric's histograms along a run, and the exemplars of its points."""

from typing import Any

from stepscope.hub.questions import spreads
from stepscope.hub.questions.endpoint import LIMIT, RUN, SINCE, UNTIL, Endpoint, Reader, nanoseconds, whole
from stepscope.hub.questions.exemplars import ExemplarRow, read_exemplars
from stepscope.hub.questions.params import Param
from stepscope.hub.questions.schemas import ATTRS, BOOLEAN, INTEGER, NUMBER, SECONDS, STEP, TEXT, many, maybe, thing
from stepscope.hub.questions.shapes import seconds
from stepscope.hub.questions.spread_rows import Spread, read_spreads
from stepscope.wire.plain import plain

MOST_SERIES = 64


def histograms(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/histograms`."""
    scale = 1.0 if given["x"] == "step" else 1e9
    spread = Spread(
        run=reader.number(given["run"]),
        key=given["key"],
        x=given["x"],
        points=given["points"],
        start=whole(given["from"], scale),
        end=whole(given["to"], scale),
        rank=given["rank"],
    )
    found = read_spreads(reader.engine, spread)
    return {
        "run": given["run"],
        "key": given["key"],
        "x": given["x"],
        "more": len(found) > MOST_SERIES,
        "series": [spreads.line(each, given["x"]) for each in found[:MOST_SERIES]],
    }


def exemplars(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/exemplars`."""
    found = read_exemplars(
        reader.engine,
        reader.number(given["run"]),
        given["key"],
        rank=given["rank"],
        since=nanoseconds(given["since"]),
        until=nanoseconds(given["until"]),
        limit=given["limit"],
    )
    return {"run": given["run"], "key": given["key"], "exemplars": [_exemplar(row) for row in found]}


def _exemplar(row: ExemplarRow) -> dict[str, Any]:
    return {
        "rank": row.line.rank,
        "series": plain(row.line.attrs),
        "scope": row.line.scope,
        "attempt": row.attempt,
        "step": row.step,
        "time": seconds(row.time),
        "value": plain(row.value),
        "trace_id": row.trace_id.hex() if row.trace_id else None,
        "span_id": row.span_id.hex() if row.span_id else None,
        "attrs": plain(row.attrs),
    }


_KEY = Param("key", "text", "a metric, such as actor/length", required=True)
_RANK = Param("rank", "integer", "of this rank only", low=0, high=2**32 - 1)
_ROW = thing(
    x=maybe(NUMBER), step=STEP, time=SECONDS, attempt=INTEGER, merged=INTEGER, count=INTEGER, sum=maybe(NUMBER),
    min=maybe(NUMBER), max=maybe(NUMBER), bounds=many(NUMBER), counts=many(INTEGER), quantiles=many(many(NUMBER)),
)  # fmt: skip
_SERIES = thing(
    rank=INTEGER, axis=TEXT, attrs=ATTRS, scope=TEXT, type=TEXT, unit=TEXT, cumulative=BOOLEAN, total=INTEGER,
    shown=INTEGER, rows=many(_ROW),
)  # fmt: skip
_EXEMPLAR = thing(
    rank=INTEGER, series=ATTRS, scope=TEXT, attempt=INTEGER, step=STEP, time=SECONDS, value=NUMBER,
    trace_id=maybe(TEXT), span_id=maybe(TEXT), attrs=ATTRS,
)  # fmt: skip

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/histograms",
        "readHistograms",
        "The distributions of a metric along a run, thinned; each rank and set of attributes by itself.",
        histograms,
        thing(run=TEXT, key=TEXT, x=TEXT, more=BOOLEAN, series=many(_SERIES)),
        (
            RUN,
            _KEY,
            Param("x", "choice", "what runs along x", "step", choices=("step", "time")),
            Param("points", "integer", "about so many rows of each series at most", default=100, low=1, high=1000),
            Param("from", "number", "the least x"),
            Param("to", "number", "the greatest x"),
            _RANK,
        ),
    ),
    Endpoint(
        "/api/runs/{run}/exemplars",
        "readExemplars",
        "Single measurements behind the points of a metric, with their spans; the newest first.",
        exemplars,
        thing(run=TEXT, key=TEXT, exemplars=many(_EXEMPLAR)),
        (RUN, _KEY, _RANK, SINCE, UNTIL, LIMIT),
    ),
)
