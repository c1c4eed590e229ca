"""Samples: rows of texts and numbers by step, such as prompts, completions and rewards."""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from stepscope.model import names
from stepscope.model.records import LOG
from stepscope.model.sample_columns import MAX_COLUMNS, MAX_NAME
from stepscope.sdk.attributes import CUT, LONGEST, clean_value, shorten
from stepscope.sdk.context import Mark, current_ids, pack_any, text_of
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import Unmasked, unpacked
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.tensors import Refused, step_number

MAX_ROWS = 10_000
"""Rows of one table in one call."""
MAX_TEXT = 256 * 1024
"""Characters of all texts of one row, beside the limit of each; later ones are cut."""
_ROW_BYTES, _CHARACTER_BYTES = 800, 4
"""Memory of a row beside the characters of its texts, and of a character that may not be ASCII."""
_NUMBERS = frozenset((float, bool, type(None)))
_known_columns: set[tuple[Any, ...]] = set()
"""The columns of earlier rows: few, and none with a long name."""
_MAX_KNOWN = 1000
_INFO = names.SEVERITIES["INFO"]


class Table:
    """Rows for `log`: `Table(["prompt", "completion"], [["2+2=", "4"]])`. Rows are lists, or dicts by column.

    A pandas DataFrame may be given in place of the rows. Never raises: what is no row is counted when it is logged.
    """

    def __init__(self, columns: Iterable[Any] | None = None, rows: Any = None) -> None:
        try:
            if rows is None and hasattr(columns, "columns"):
                columns, rows = None, columns
            if hasattr(rows, "columns") and hasattr(rows, "values"):  # a DataFrame
                columns, rows = list(rows.columns) if columns is None else columns, rows.values.tolist()
            self.columns: list[Any] | None = None if columns is None else list(columns)
            self.rows: list[Any] = [] if rows is None else list(rows)
        except BaseException as error:
            pass_on(error)
            self.columns, self.rows = None, [error]  # counted as no row

    def add(self, *cells: Any, **named: Any) -> None:
        """Add a row: its cells in the order of the columns, or by their names."""
        self.rows.append(named if named else cells)

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True


class Sampled(Protocol):
    """The parts of a run that are used here."""

    outcomes: Outcomes
    recorder: Recorder

    @property
    def mark(self) -> Mark:
        """The current step of the calling code."""


def sample(run: Sampled, row: Any, step: Any, table: Any, columns: dict[str, Any]) -> None:
    """Record a row of a table, as `Run.sample` says; `columns` is kept. Never raises."""
    try:
        mark = run.mark if step is None else Mark(step_number(step), None)
        name = _name(table)
        if row is None:
            cells = columns
        elif isinstance(row, Mapping):
            cells = {**_first(run, name, row.items(), len(row)), **columns}
        else:
            run.outcomes.reject(f"sample({name})", f"row must be a dict, got {type(row).__name__}")
            return
        _put(run, name, mark, cells, time.time_ns())
    except Refused as reason:
        run.outcomes.reject("sample", str(reason))
    except BaseException as error:
        pass_on(error)
        run.outcomes.reject("sample", type(error).__name__)


def put_table(run: Sampled, key: str, table: Table, mark: Mark) -> None:
    """Record the rows of a table that was given to `log`. Never raises."""
    name, now = _name(key), time.time_ns()
    if len(table.rows) > MAX_ROWS:
        run.outcomes.reject(name, f"more than {MAX_ROWS} rows", len(table.rows) - MAX_ROWS)
    for at, row in enumerate(islice(table.rows, MAX_ROWS)):
        try:
            named = _named(run, name, table.columns, row)
            if named is None:
                run.outcomes.reject(name, "not a row of its columns")
            else:
                _put(run, name, mark, named, now + at)
        except BaseException as error:
            pass_on(error)
            run.outcomes.reject(name, type(error).__name__)


def _named(run: Sampled, table: str, columns: Sequence[Any] | None, row: Any) -> dict[Any, Any] | None:
    """Copy a row by column; None when it has no cells, or more than there are columns."""
    if isinstance(row, Mapping):
        return _first(run, table, row.items(), len(row))
    if columns is None or not isinstance(row, (list, tuple)) or not 0 < len(row) <= len(columns):
        return None
    return _first(run, table, zip(columns, row, strict=False), len(row))


def _first(run: Sampled, table: str, cells: Iterable[tuple[Any, Any]], count: int) -> dict[Any, Any]:
    """Copy the cells of a row; those beyond the limit are rejected and not looked at."""
    if count > MAX_COLUMNS:
        run.outcomes.reject(table, f"more than {MAX_COLUMNS} columns", count - MAX_COLUMNS)
    return dict(islice(cells, MAX_COLUMNS))


def _put(run: Sampled, table: str, mark: Mark, row: dict[Any, Any], now: int) -> None:
    """Record one row, a dict of the call's own; it is one log record, whose attributes are the columns."""
    if not row:
        run.outcomes.reject(table, "no columns")
        return
    size = _plain_bytes(row)
    cells = row if size else _cells(run, table, row)
    step, axis = mark
    trace, span = current_ids()
    fields = (LOG, now, step, axis, trace, span, _INFO, table, cells, names.SCOPE_SAMPLES)
    run.recorder.put(unpacked(fields, size) if size else Unmasked(pack_any(fields)))


def _plain_bytes(row: dict[Any, Any]) -> int:
    """Return the memory that a row takes which can be kept as it is, 0 for any other.

    Such a row has few columns with short names, numbers, and texts within the limits: none of these can change.
    """
    if tuple(row) not in _known_columns and not _are_columns(row):
        return 0
    size = 0
    for value in row.values():
        kind = type(value)
        if kind is str:
            size += len(value) if value.isascii() else _CHARACTER_BYTES * len(value)
        elif kind is int:
            if not -(2**63) <= value < 2**64:
                return 0
        elif kind not in _NUMBERS:
            return 0
    return 0 if size > LONGEST else _ROW_BYTES + size


def _are_columns(row: dict[Any, Any]) -> bool:
    """Return whether the names of the columns of a row can be recorded as they are."""
    if len(row) > MAX_COLUMNS or not all(type(name) is str and len(name) <= MAX_NAME for name in row):
        return False
    if len(_known_columns) < _MAX_KNOWN:
        _known_columns.add(tuple(row))
    return True


def _cells(run: Sampled, table: str, row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the cells of any row, copied and cut to the limits."""
    if len(row) > MAX_COLUMNS:
        run.outcomes.reject(table, f"more than {MAX_COLUMNS} columns", len(row) - MAX_COLUMNS)
    cells: dict[str, Any] = {}
    left = MAX_TEXT
    for name, value in islice(row.items(), MAX_COLUMNS):
        key, kind = _name(name), type(value)
        cell = shorten(value) if kind is str else value if kind is float else clean_value(value)
        if type(cell) is str:
            if kind is not str and is_on_device(value):
                run.outcomes.reject(f"{table}.{key}", "on a device: reading it would wait")
            if len(cell) > left:
                cell = f"{cell[: max(left, 0)]}{CUT} ({len(cell)} characters)"
            left -= len(cell)
        cells[key] = cell
    return cells


def is_on_device(value: Any) -> bool:
    """Return whether a value is a tensor that only its device holds; its text then says so instead of its numbers."""
    try:
        return hasattr(value, "device") and hasattr(value, "shape") and not getattr(value, "is_cpu", True)
    except BaseException as raised:
        pass_on(raised)
        return False


def _name(given: Any) -> str:
    text = given if type(given) is str else text_of(given)
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}{CUT}"
