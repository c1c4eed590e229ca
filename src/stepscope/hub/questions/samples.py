"""Samples of runs: the tables of a run, their rows by step, searches in them, and the same prompt at other steps."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.hub.questions.toolbox.endpoint import OFFSET, RUN, Endpoint, Next, Param, Reader, seconds
from stepscope.hub.refusals import bad_request, not_found
from stepscope.hub.store import literal
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.hub.store.read.sample_rows import (
    SampleRow,
    SampleTable,
    by_column,
    has_text,
    of_table,
    read_samples,
    sample_steps,
    sample_tables,
    with_prompts,
)
from stepscope.model.records import Seconds
from stepscope.wire.plain import plain

MAX_SHOWN_STEPS = 2000
"""Steps in an answer; of more, evenly many are left out."""
MAX_SEARCHED = 100_000
"""Rows that one search reads; `before` continues with older steps."""
MAX_CHARS = 2_000_000
"""Rows times characters of a text, so that an answer stays small."""
MAX_OTHERS = 1000
_BY_PLACE = "step, rank, time"
_ID = re.compile(r"([0-9]{1,10})-(-?[0-9]{1,19})")


class SampleJson(TypedDict):
    """A row of a table of samples."""

    run: str
    table: str
    step: int | None
    axis: str | None
    rank: int
    attempt: int
    time: Seconds
    id: str
    prompt: Annotated[str | None, Meta(description="The same for all rows of the same prompt.")]
    cells: Annotated[dict[str, Any], Meta(description="The columns of the row; texts are cut to `chars`.")]
    cut: Annotated[dict[str, int], Meta(description="The characters of the texts that were cut.")]


class PromptPage(TypedDict):
    """Rows of one prompt."""

    columns: list[str]
    rows: list[SampleJson]
    next: Next


class SamplePage(PromptPage):
    """Rows of a table at a step, or those with a text."""

    run: str
    tables: list[SampleTable]
    table: str | None
    step: int | None
    steps: Annotated[list[int | None], Meta(description=f"Steps with rows; of more than {MAX_SHOWN_STEPS}, so many.")]
    others: Annotated[list[SampleJson], Meta(description="Rows of the same prompts, of `other_run` or `other_step`.")]
    other_step: int | None
    searched_from: Annotated[
        int | None, Meta(description="The first step that was searched; `before` it there are more.")
    ]


_CHARS = Param("chars", "integer", "characters of each text; `cut` says which are longer", 2000, low=1, high=70_000)
_ROWS = Param("limit", "integer", "at most this many rows", default=50, low=1, high=1000)


@Endpoint(
    "/api/runs/{run}/samples",
    "findSamples",
    (
        RUN,
        Param("table", "text", "the table; by default the largest"),
        Param("step", "integer", "the last step with rows at or before this one; by default the last"),
        Param("q", "text", "with this text in a column, ignoring case; at all steps unless one is named"),
        Param("before", "integer", "of a search, steps before this one only"),
        Param("sort", "text", "order by this column, descending with - in front; by default by rank and time"),
        Param("id", "text", "this row only, which is of the named step"),
        Param("other_run", "text", "add the rows of the same prompts of this run"),
        Param("other_step", "integer", "add the rows of the same prompts at or before this step"),
        *(_CHARS, _ROWS, OFFSET),
    ),
)
def samples(reader: Reader, given: dict[str, Any]) -> SamplePage:
    """Rows of a table of samples at a step, or those with a text at any step; and the same prompts at another step or
    in another run.
    """
    run, chars = reader.number(given["run"]), _affordable(given)
    tables = sample_tables(reader.engine, run)
    table = _chosen(tables, given["table"])
    answer: SamplePage = {
        "run": given["run"],
        "tables": tables,
        "table": None,
        "step": None,
        "steps": [],
        "columns": [],
        "rows": [],
        "others": [],
        "other_step": None,
        "searched_from": None,
        "next": None,
    }
    if table is None:
        return answer
    steps = sample_steps(reader.engine, run, table.name)
    conditions = [of_table(run, table.name)]
    at = searched_from = None
    if given["step"] is None and given["q"]:
        searched_from, within = _searched(steps, given["before"])
        conditions += within
    else:
        at = _nearest(steps, given["step"])
        conditions.append(f"step = {at}")
    if given["q"]:
        conditions.append(has_text(given["q"]))
    if given["id"]:
        conditions.append(_of_id(given["id"]))
    rows = read_samples(
        reader.engine,
        " AND ".join(conditions),
        _order(given["sort"], newest=at is None),
        f"{given['offset']}, {given['limit'] + 1}",
        chars,
    )
    more, rows = len(rows) > given["limit"], rows[: given["limit"]]
    other, others = _others(reader, given, table.name, rows, chars)
    return {
        **answer,
        "table": table.name,
        "step": None if at is None else step_of(at),
        "steps": [step_of(step) for step, _ in _thinned(steps)],
        "columns": _columns([*rows, *others]),
        "rows": [_row_json(row, given["run"]) for row in rows],
        "others": [_row_json(row, given["other_run"] or given["run"]) for row in others],
        "other_step": other,
        "searched_from": searched_from,
        "next": given["offset"] + given["limit"] if more else None,
    }


@Endpoint(
    "/api/samples",
    "findSamePrompt",
    (
        Param("run", "text", "in this run", required=True, many=20),
        Param("prompt", "hex", "the prompt, as rows have it", required=True, width=8),
        Param("table", "text", "in this table only"),
        *(_CHARS, _ROWS, OFFSET),
    ),
)
def same_prompt(reader: Reader, given: dict[str, Any]) -> PromptPage:
    """All rows of one prompt in some runs, by run, table and step."""
    chars = _affordable(given)
    numbers = {reader.number(run): run for run in dict.fromkeys(given["run"])}
    prompt = int.from_bytes(given["prompt"])
    named = "" if given["table"] is None else f" AND name = {literal.text(given['table'])}"
    rows = read_samples(
        reader.engine,
        f"run IN {literal.integers(numbers)}{named} AND prompt > 0 AND {with_prompts([prompt])}",
        f"run, name, {_BY_PLACE}",
        f"{given['offset']}, {given['limit'] + 1}",
        chars,
    )
    more, rows = len(rows) > given["limit"], rows[: given["limit"]]
    return {
        "columns": _columns(rows),
        "rows": [_row_json(row, numbers[row.run]) for row in rows],
        "next": given["offset"] + given["limit"] if more else None,
    }


def _of_id(id: str) -> str:
    found = _ID.fullmatch(id)
    if found is None:
        raise bad_request(f"id is {id[:80]!r} and must be that of a row, such as 0-1700000000000000000")
    return f"rank = {int(found[1])} AND time = {int(found[2])}"


def _affordable(given: dict[str, Any]) -> int:
    """How many characters of each text are read: fewer than asked for where there are many rows."""
    chars: int = given["chars"]
    limit: int = given["limit"]
    return min(chars, max(MAX_CHARS // limit, 1))


def _chosen(tables: Sequence[SampleTable], name: str | None) -> SampleTable | None:
    """The table of a name; without one, that with the most rows."""
    if name is None:
        return max(tables, key=lambda each: each.rows, default=None)
    found = next((each for each in tables if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in tables[:20]) or "none"
        raise not_found(f"there is no table {name[:200]!r}; there are: {known}")
    return found


def _nearest(steps: Sequence[tuple[int, int]], wanted: int | None) -> int:
    """The last step at or before one; the first of all when there is none before it, the last when none is given."""
    after = len(steps) if wanted is None else bisect_right(steps, wanted, key=itemgetter(0))
    return steps[max(after - 1, 0)][0]


def _searched(steps: Sequence[tuple[int, int]], before: int | None) -> tuple[int | None, list[str]]:
    """The first of the newest steps that one search reads, None when it reads the oldest too; and the conditions."""
    within = [] if before is None else [f"step < {before}"]
    rows = 0
    for step, count in reversed([each for each in steps if before is None or each[0] < before]):
        rows += count
        if rows > MAX_SEARCHED and rows > count:
            return step + 1, [*within, f"step > {step}"]
    return None, within


def _order(sort: str | None, *, newest: bool) -> str:
    place = "step DESC, rank, time" if newest else _BY_PLACE
    if not sort:
        return place
    return f"{by_column(sort.removeprefix('-'), descending=sort.startswith('-'))}, {place}"


def _others(
    reader: Reader, given: dict[str, Any], table: str, rows: Sequence[SampleRow], chars: int
) -> tuple[int | None, list[SampleRow]]:
    """The rows of the same prompts at another step, or in another run, and that step."""
    if given["other_run"] is None and given["other_step"] is None:
        return None, []
    run = reader.number(given["other_run"] or given["run"])
    prompts = {row.prompt for row in rows} - {0}
    steps = sample_steps(reader.engine, run, table)
    if not steps:
        return None, []
    wanted = given["other_step"] if given["other_step"] is not None else given["step"]
    at = _nearest(steps, wanted)
    if not prompts:
        return step_of(at), []
    where = f"{of_table(run, table)} AND step = {at} AND {with_prompts(prompts)}"
    most = max(min(MAX_OTHERS, MAX_CHARS // chars), 1)
    return step_of(at), read_samples(reader.engine, where, _BY_PLACE, str(most), chars)


def _thinned(steps: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """So many steps that a slider can offer them, the first and the last among them."""
    if len(steps) <= MAX_SHOWN_STEPS:
        return steps
    last = len(steps) - 1
    return [steps[round(at * last / (MAX_SHOWN_STEPS - 1))] for at in range(MAX_SHOWN_STEPS)]


def _columns(rows: Sequence[SampleRow]) -> list[str]:
    """The columns of some rows, in the order in which they first come."""
    return list(dict.fromkeys(name for row in rows for name in row.cells))


def _row_json(row: SampleRow, run: str) -> SampleJson:
    return {
        "run": run,
        "table": row.table,
        "step": row.step,
        "axis": row.axis or None,
        "rank": row.rank,
        "attempt": row.attempt,
        "time": seconds(row.time),
        "id": f"{row.rank}-{row.time}",
        "prompt": f"{row.prompt:016x}" if row.prompt else None,
        "cells": plain(row.cells),
        "cut": row.cut,
    }
