"""Samples as they are stored: the tables of a run, their steps, and rows with their texts cut to a length."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.model.names import SCOPE_SAMPLES, SEVERITIES
from stepscope.model.records import Attrs, Log

MAX_TABLES = 200
MAX_STEPS = 200_000
"""Steps of a table that are read; the newest are kept."""
PAGE = 2000
"""Rows that are read at a time, whole."""


class SampleTable(Struct, frozen=True):
    """A table of samples of a run."""

    name: str
    rows: int
    steps: int
    first_step: int | None
    last_step: int | None


class SampleRow(Struct, frozen=True):
    """A row; `cut` has the characters of the texts that are not whole here."""

    run: int
    table: str
    step: int | None
    rank: int
    attempt: int
    time: int
    axis: str
    prompt: int
    cells: Attrs
    cut: dict[str, int]


def sample_tables(engine: Engine, run: int) -> list[SampleTable]:
    """The tables of a run by name."""
    found = engine.query(
        f"""SELECT name, sum(counted) AS held, uniqExact(step) AS steps, min(step) AS first, max(step) AS last
        FROM ({_counted(f"run = {run}", "name")}) GROUP BY name ORDER BY name LIMIT {MAX_TABLES}"""
    )
    return [
        SampleTable(name, rows, steps, step_of(first), step_of(last))
        for name, rows, steps, first, last in found.rows("name", "held", "steps", "first", "last")
    ]


def sample_steps(engine: Engine, run: int, table: str) -> list[tuple[int, int]]:
    """The steps of a table that have rows, and how many; stored steps, in ascending order."""
    found = engine.query(
        f"""SELECT step, sum(counted) AS held FROM ({_counted(of_table(run, table))})
        GROUP BY step ORDER BY step DESC LIMIT {MAX_STEPS}"""
    )
    return list(found.rows("step", "held"))[::-1]


def _counted(condition: str, *keys: str) -> str:
    """The samples that each commit has at a step; a row that is there twice counts once."""
    places = ", ".join((*keys, "step", "commit"))
    return f"SELECT {places}, any(row_count) AS counted FROM sample_steps WHERE {condition} GROUP BY {places}"


def of_table(run: int, table: str) -> str:
    """The condition for the rows of one table of a run."""
    return f"run = {run} AND name = {literal.text(table)}"


def has_text(text: str) -> str:
    """The condition for rows with a text in any column, ignoring case."""
    return f"arrayExists(each -> positionCaseInsensitiveUTF8(each, {literal.text(text)}) > 0, attr_values)"


def by_column(column: str, *, descending: bool) -> str:
    """The order of rows by a column: its numbers, then its texts."""
    value = f"attr_values[indexOf(attr_names, {literal.text(column)})]"
    way = " DESC" if descending else ""
    return f"toFloat64OrZero({value}){way}, {value}{way}"


_PLACE = ("run", "name", "step", "rank", "attempt", "time", "axis", "prompt", "attr_names", "attr_types")


def read_samples(engine: Engine, where: str, order: str, limit: str, chars: int) -> list[SampleRow]:
    """The rows that match a condition, each text cut to so many characters."""
    found = engine.query(
        f"""SELECT {", ".join(_PLACE)}, arrayMap(each -> substringUTF8(each, 1, {int(chars)}), attr_values) AS shown,
            arrayMap(each -> lengthUTF8(each), attr_values) AS lengths
        FROM samples WHERE {where} ORDER BY {order} LIMIT {limit}"""
    )
    return [_row(row, chars) for row in found.rows(*_PLACE, "shown", "lengths")]


def _row(row: Sequence[Any], chars: int) -> SampleRow:
    run, table, step, rank, attempt, time, axis, prompt, names, types, shown, lengths = row
    cut = {name: length for name, length in zip(names, lengths, strict=True) if length > chars}
    cells = {
        name: text if name in cut else attrs.decode_value(letter, text)
        for name, letter, text in zip(names, types, shown, strict=True)
    }
    return SampleRow(run, table, step_of(step), rank, attempt, time, axis, prompt, cells, cut)


def sample_columns(engine: Engine, run: int) -> list[str]:
    """All columns of the tables of a run, in the order of their names."""
    found = engine.query(
        f"SELECT DISTINCT arrayJoin(attr_names) AS column FROM samples WHERE run = {run} ORDER BY column"
    )
    return list(found["column"])


def every_sample(engine: Engine, where: str) -> Iterator[list[tuple[int, int, Log]]]:
    """Yield rank, attempt and record of all rows that match a condition, by time, about `PAGE` at once."""
    times = sorted(engine.query(f"SELECT time FROM samples WHERE {where}")["time"])
    bounds = sorted(set(times[::PAGE]))  # rows of one time are in one page
    for first, end in zip(bounds, [*bounds[1:], None], strict=False):
        until = "" if end is None else f" AND time < {end}"
        yield _records(engine, f"{where} AND time >= {first}{until}")


def _records(engine: Engine, where: str) -> list[tuple[int, int, Log]]:
    columns = (
        *("rank", "attempt", "time", "step", "axis", "trace_id", "span_id", "name"),
        *("attr_names", "attr_values", "attr_types"),
    )
    found = engine.query(f"SELECT {', '.join(columns)} FROM samples WHERE {where} ORDER BY time, rank, name, writer")
    return [_record(row) for row in found.rows(*columns)]


def _record(row: Sequence[Any]) -> tuple[int, int, Log]:
    rank, attempt, time, step, axis, trace, span, name, *cells = row
    ids = (None if trace == bytes(16) else trace, None if span == bytes(8) else span)
    log = Log(time, step_of(step), axis or None, *ids, SEVERITIES["INFO"], name, attrs.restore(*cells), SCOPE_SAMPLES)
    return rank, attempt, log


def with_prompts(prompts: Collection[int]) -> str:
    """The condition for rows of some prompts."""
    return f"prompt IN {literal.integers(prompts)}"
