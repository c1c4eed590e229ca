"""Endpoints of runs: the table, one run, its keys, its lines."""

from collections.abc import Sequence
from typing import Any

from stepscope.hub.questions import expression, lines, schemas, shapes
from stepscope.hub.questions import run_table as runs
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader, whole
from stepscope.hub.questions.expression import ExpressionError, fields_of
from stepscope.hub.questions.metric_choice import MEANINGS, meant_by
from stepscope.hub.questions.params import Param, bad
from stepscope.hub.questions.run_table import CursorError
from stepscope.hub.questions.schemas import INTEGER, NUMBER, SECONDS, STEP, TEXT, many, maybe, thing
from stepscope.hub.questions.series import Question, read_by_scope
from stepscope.hub.questions.sparks import metric_names
from stepscope.hub.store.run_catalog import RunRow, read_writers
from stepscope.hub.store.series_catalog import list_keys, read_lines
from stepscope.model.records import Attrs
from stepscope.wire.plain import plain

MOST_LINES = 64
SAID = ("config", "tags", "notes", "group", "job_type")
"""What a run is started with and is told apart from its environment."""


def table(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs`."""
    sort: str = given["sort"]
    state = runs.remembering(reader.states.status)
    try:
        wanted = expression.parse(given["filter"] or "")
        fields = [*runs.check(wanted), runs.check_field(sort.removeprefix("-"), 0)]
        asked = list(dict.fromkeys([*runs.metric_names(fields), *given["metric"]]))
        meant = meant_names(reader, asked)
        keys = [key for each in meant.values() for key in each]
        everything = reader.runs(keys=list(dict.fromkeys(keys)))
        runs.check_present([*fields_of(wanted), (sort.removeprefix("-"), 0)], everything, meant, lambda: _known(reader))
        rows = _unarchived(everything, given["archived"], fields)
        found = runs.pick(rows, wanted, state, meant)
        page = runs.page(found, sort, given["cursor"], given["limit"], state, meant)
    except (ExpressionError, CursorError) as error:
        raise bad(str(error)) from None
    return {
        "runs": [shapes.run(row, state(row), meant) for row in page.rows],
        "matched": page.matched,
        "total": len(rows),
        "archived": sum(row.archived for row in everything),
        "next": page.following,
    }


def _unarchived(rows: list[RunRow], archived: str, fields: list[str]) -> list[RunRow]:
    """Leave out archived runs, or all others, unless they are asked for or the filter speaks of them."""
    if archived == "show" or (archived == "hide" and "archived" in fields):
        return rows
    return [row for row in rows if row.archived == (archived == "only")]


def meant_names(reader: Reader, asked: Sequence[str]) -> dict[str, list[str]]:
    """The keys that each name of a metric may mean."""
    known = _known(reader) if any(name in MEANINGS for name in asked) else []
    return {name: meant_by(name, known) for name in asked}


def _known(reader: Reader) -> list[str]:
    """The metrics of the runs that may be seen, those of most runs first."""
    mine = None if reader.project is None else [row.number for row in reader.runs()]
    found = [each.key for each in metric_names(reader.engine, mine)]
    return [key for key in found if not key.startswith("stepscope/")]


def one(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}`."""
    row = reader.run(given["run"])
    writers = read_writers(reader.engine, row.number)
    rest = {key: value for key, value in row.beginning.items() if key not in SAID}
    return {
        **shapes.run(row, reader.states.status(row), {}),
        "environment": plain(rest),
        "writers": [shapes.writer(writer) for writer in writers],
        "endings": [
            {"rank": end.rank, "attempt": end.attempt, "time": shapes.seconds(end.time), "status": end.status}
            for end in row.endings
        ],
    }


def keys(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/keys`."""
    found = list_keys(reader.engine, reader.number(given["run"]))
    return {"keys": [shapes.key(row) for row in found]}


def series(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/series`."""
    run, x = reader.number(given["run"]), given["x"]
    wanted = [(key, *part) for key in given["key"] for part in _parts(reader, run, key, given)]
    if len(wanted) > MOST_LINES:
        raise bad(f"these are {len(wanted)} lines; ask for {MOST_LINES} at most")
    attempt = given["attempts"]
    if attempt not in ("newest", "all"):
        if not attempt.isascii() or not attempt.isdecimal() or int(attempt) > 65535:
            raise bad("attempts must be newest, all or the number of one")
        attempt = int(attempt)
    made = []
    scale = 1.0 if x == "step" else 1e9
    for key, rank, attrs in wanted:
        question = Question(
            run=run,
            key=key,
            x=x,
            points=given["points"],
            start=whole(given["from"], scale),
            end=whole(given["to"], scale),
            rank=rank,
            attempt=attempt,
            axis=given["axis"],
            attrs=attrs,
            scope=given["scope"],
            align=given["align"],
        )
        made += [lines.line(key, rank, found, x, attrs) for found in read_by_scope(reader.engine, question)]
    return {"run": given["run"], "x": x, "series": made}


def _parts(reader: Reader, run: int, key: str, given: dict[str, Any]) -> list[tuple[int | None, Attrs | None]]:
    """Which ranks and attributes get a line: each one where that was asked for, None for all of them together."""
    by_rank = given["by_rank"] and given["rank"] is None
    if not by_rank and not given["by_attrs"]:
        return [(given["rank"], None)]
    parts: list[tuple[int | None, Attrs | None]] = []
    for line in read_lines(reader.engine, run, key=key, rank=given["rank"]).values():
        part = (line.rank if by_rank else given["rank"], line.attrs if given["by_attrs"] else None)
        if part not in parts:
            parts.append(part)
        if len(parts) > MOST_LINES:
            raise bad(f"{key} has more than {MOST_LINES} lines; ask for one rank, or for all together")
    return sorted(parts, key=lambda part: (part[0] or 0, str(part[1]))) or [(given["rank"], None)]


_WRITER = thing(
    id=TEXT, attempt=INTEGER, rank=INTEGER, local_rank=INTEGER, main=schemas.BOOLEAN, host=TEXT,
    pid=INTEGER, started=SECONDS, seen=SECONDS, step=STEP, counts=schemas.COUNTS, resource=schemas.ATTRS,
)  # fmt: skip
_KEY = thing(
    key=TEXT, name=TEXT, category=maybe(TEXT), type=TEXT, unit=TEXT, description=TEXT, axes=many(TEXT),
    ranks=many(INTEGER), attempts=many(INTEGER), attrs=many(schemas.ATTRS), scopes=many(TEXT), points=INTEGER,
    flags=INTEGER, first_step=STEP, last_step=STEP, first_time=SECONDS, last_time=SECONDS, min=maybe(NUMBER),
    max=maybe(NUMBER), last=maybe(NUMBER),
)  # fmt: skip
_LINE = thing(
    key=TEXT, rank=maybe(INTEGER), attrs=maybe(schemas.ATTRS), scope=TEXT, unit=TEXT, axes=many(TEXT),
    ranks=many(INTEGER), total=INTEGER, shown=INTEGER, superseded=INTEGER, flags=INTEGER, origin=SECONDS,
    shape={"type": "string", "enum": ["raw", "buckets"]}, aligned=schemas.BOOLEAN,
    columns=schemas.table(many(maybe(NUMBER))),
)  # fmt: skip

ENDPOINTS = (
    Endpoint(
        "/api/runs",
        "listRuns",
        "The runs that a filter picks, sorted, page by page.",
        table,
        thing(
            runs=many(thing(**schemas.RUN_FIELDS)), matched=INTEGER, total=INTEGER, archived=INTEGER, next=maybe(TEXT)
        ),
        (
            Param(
                "filter",
                "text",
                "words to find in name, id, project or tags, or conditions: `status = running and metrics.loss < 0.5`",
            ),
            Param("sort", "text", "a field to sort by; `-` in front: the highest first", default="-started"),
            Param("metric", "text", "show the latest value of this metric", many=50),
            Param("archived", "choice", "what becomes of archived runs", "hide", choices=("hide", "show", "only")),
            Param("limit", "integer", "so many at most", default=100, low=1, high=10_000),
            Param("cursor", "text", "`next` of the page before"),
        ),
    ),
    Endpoint(
        "/api/runs/{run}/keys",
        "listKeys",
        "The metrics of a run with their extent, extremes and last value.",
        keys,
        thing(keys=many(_KEY)),
        (RUN,),
    ),
    Endpoint(
        "/api/runs/{run}/series",
        "readSeries",
        "Metrics of a run as lines: every point when they fit, else buckets that keep every spike.",
        series,
        thing(run=TEXT, x=TEXT, series=many(_LINE)),
        (
            RUN,
            Param("key", "text", "a metric, such as trainer/loss", required=True, many=MOST_LINES),
            Param("x", "choice", "what runs along x", "step", choices=("step", "time", "relative")),
            Param("points", "integer", "about so many marks at most", default=1000, low=1, high=20_000),
            Param("from", "number", "the least x"),
            Param("to", "number", "the greatest x"),
            Param("rank", "integer", "of this rank only, not of all together", low=0, high=2**32 - 1),
            Param("by_rank", "boolean", "a line for each rank", default=False),
            Param("align", "boolean", "over time, what several ranks logged at a step is one mark", default=False),
            Param("by_attrs", "boolean", "a line for each set of attributes", default=False),
            Param("attempts", "text", "newest (superseded points are left out), all, or the number of one", "newest"),
            Param("axis", "text", "of this step axis only, where a metric has several"),
            Param("scope", "text", "of this instrumentation scope only; each has a line of its own"),
        ),
    ),
    Endpoint(
        "/api/runs/{run}",
        "readRun",
        "One run: its configuration, environment, processes and endings.",
        one,
        thing(
            **schemas.RUN_FIELDS,
            environment=schemas.ATTRS,
            writers=many(_WRITER),
            endings=many(thing(rank=INTEGER, attempt=INTEGER, time=SECONDS, status=TEXT)),
        ),
        (RUN,),
    ),
)
