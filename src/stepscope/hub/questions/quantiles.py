"""The endpoint of quantiles: how a latency, or any metric, spreads along a run."""

import math
from typing import Any, Literal

from stepscope.hub.questions import quantile_rows as read
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.params import Param, bad
from stepscope.hub.questions.quantile_json import of_histograms
from stepscope.hub.questions.quantile_rows import Extent, Stretches
from stepscope.hub.questions.schemas import TEXT, many, thing
from stepscope.hub.store.series_catalog import read_lines

MOST_HISTOGRAMS = 20_000
_NOTHING = Stretches([], [], [], [])


def quantiles(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/quantiles`."""
    if len(given["key"]) + len(given["span"]) > MOST_LINES:
        raise bad(f"ask for {MOST_LINES} keys and spans at most")
    levels = [_level(text) for text in given["q"]] or [0.5, 0.99]
    run, x = reader.number(given["run"]), given["x"]
    found = [("key", key, _of_key(reader, run, key, x, given["points"], levels)) for key in given["key"]]
    found += [("span", name, _of_span(reader, run, name, x, given["points"], levels)) for name in given["span"]]
    return {"run": given["run"], "x": x, "q": levels, "series": [_line(*each, x, levels) for each in found]}


MOST_LINES = 32


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0 <= level <= 1:
        raise bad(f"q is {text[:20]!r} and must be a number from 0 to 1")
    return level


def _of_span(
    reader: Reader, run: int, name: str, x: Literal["step", "time"], points: int, levels: list[float]
) -> Stretches:
    bounds = read.span_extent(reader.engine, run, name, x)
    if bounds is None:
        return _NOTHING
    found = read.span_quantiles(reader.engine, run, name, Extent(x, *bounds, points), levels)
    in_ms = [[value / 1e6 for value in line] for line in found.values]
    return Stretches(found.first, found.last, found.count, in_ms)


def _of_key(
    reader: Reader, run: int, key: str, x: Literal["step", "time"], points: int, levels: list[float]
) -> Stretches:
    lines = read_lines(reader.engine, run, key=key)
    if not lines:
        return _NOTHING
    bounds = read.point_extent(reader.engine, lines, x)
    if bounds is not None:
        return read.point_quantiles(reader.engine, lines, Extent(x, *bounds, points), levels)
    records = read.read_histograms(reader.engine, run, key, x, MOST_HISTOGRAMS)
    places = [record.at for record in records if x == "time" or record.at >= 0]
    if not places:
        return _NOTHING
    return of_histograms(records, Extent(x, min(places), max(places), points), levels)


def _line(kind: str, name: str, found: Stretches, x: str, levels: list[float]) -> dict[str, Any]:
    columns = {f"q{level:g}": line for level, line in zip(levels, found.values or [[]] * len(levels), strict=True)}
    along: dict[str, list[float]] = {"x": list(found.first), "x_last": list(found.last)}
    if x == "time":
        along = {edge: [round(at / 1e9, 6) for at in values] for edge, values in along.items()}
    return {"kind": kind, "name": name, "columns": {**along, "count": found.count, **columns}}


ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/quantiles",
        "readQuantiles",
        "Quantiles along a run: of metrics, of recorded histograms, and of the durations of spans in ms.",
        quantiles,
        thing(
            run=TEXT,
            x=TEXT,
            q=many({"type": "number"}),
            series=many(
                thing(
                    kind={"type": "string", "enum": ["key", "span"]},
                    name=TEXT,
                    columns={"type": "object", "additionalProperties": many({"type": "number"})},
                )
            ),
        ),
        (
            RUN,
            Param("key", "text", "a metric", many=MOST_LINES),
            Param("span", "text", "the name of spans", many=MOST_LINES),
            Param("q", "text", "a quantile from 0 to 1; without any 0.5 and 0.99", many=8),
            Param("x", "choice", "what runs along x", "step", choices=("step", "time")),
            Param("points", "integer", "so many stretches at most", default=200, low=1, high=2000),
        ),
    ),
)
