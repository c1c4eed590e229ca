"""Rows of wandb's tables as samples: at the step that a row names, and one for each group of numbered columns."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from stepscope.model.records import FIRST_STEP, LAST_STEP
from stepscope.model.sample_columns import MAX_COLUMNS, MAX_NAME, find_column, unnumbered
from stepscope.wire.otlp.decode.request_limits import bound_values

EVENT_CHARTS = "wandb.charts"
"""How charts of tables are drawn, by the key of the chart."""
EVENT_VALUES = "wandb.values"
"""The event for other values of a history line: strings, lists, and media as objects that name their files."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of a table whose rows are read; a larger one stays a file."""
MAX_VALUES = 2_500_000
"""Values of such a table, each of which takes up to 230 bytes of memory."""
MAX_ROWS = 10_000
"""wandb's own limit."""
STEPS = ("step", "global_step", "train_step", "_step")
"""Columns that say at which step a row was made; TRL and verl write the first."""
Row = tuple[int | None, dict[str, Any]]
"""The step, where the row has one, and its cells by column."""


def has_steps(columns: Sequence[str]) -> bool:
    """Return whether rows name their steps: such tables are logged whole again with each new row."""
    return find_column(columns, STEPS) is not None


def rows_of(columns: Sequence[str], data: Iterable[Sequence[Any]]) -> Iterator[Row]:
    """Yield the rows of a table."""
    named = find_column(columns, STEPS)
    place = None if named is None else list(columns).index(named)
    groups = unnumbered(list(columns))
    repeated = frozenset(at for group in groups for at, _ in group)
    common = list(islice((each for each in enumerate(columns) if each[0] not in repeated), MAX_COLUMNS + 1))
    for row in data:
        step = None if place is None or place >= len(row) else _step(row[place])
        for cells in _split(common, row, groups):
            if step is not None and named is not None:
                cells.pop(named, None)
            yield step, cells


def read_table(path: Path) -> tuple[list[Row], bool]:
    """Read the rows of a table, and whether there are more than the limit; none of a file that is too large.

    OSError or ValueError for a file that cannot be read.
    """
    if path.stat().st_size > MAX_BYTES:
        return [], False
    try:
        written = path.read_bytes()
        bound_values(written, MAX_VALUES)
        table = json.loads(written)
        columns = [str(each)[:MAX_NAME] for each in table["columns"]]
        data = [row for row in table["data"] if isinstance(row, list)]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a table: {error!r}") from None
    rows = list(islice(rows_of(columns, data), MAX_ROWS + 1))
    limited = [(step, dict(islice(cells.items(), MAX_COLUMNS))) for step, cells in rows[:MAX_ROWS]]
    return limited, len(rows) > MAX_ROWS


def _split(
    common: Sequence[tuple[int, str]], row: Sequence[Any], groups: Sequence[Sequence[tuple[int, str]]]
) -> Iterator[dict[str, Any]]:
    """Yield the cells of a row by column; several times, where its columns repeat themselves with numbers.

    A row takes time for its own cells, however many columns its table has.
    """
    shared = {name: row[place] for place, name in common if place < len(row)}
    if not groups:
        yield shared
    for group in groups:
        if group[0][0] >= len(row):  # those that follow begin later
            return
        cells = {name: row[place] for place, name in islice(group, MAX_COLUMNS) if place < len(row)}
        if any(value is not None for value in cells.values()):
            yield {**shared, **cells}


def _step(value: Any) -> int | None:
    """The step in a cell; TRL has written it as text."""
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdigit() and len(text) < 20:
        value = int(text)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    elif not isinstance(value, int) and hasattr(value, "__index__"):  # numpy's integers, as frames have them
        value = value.__index__()
    return value if type(value) is int and FIRST_STEP <= value <= LAST_STEP else None
