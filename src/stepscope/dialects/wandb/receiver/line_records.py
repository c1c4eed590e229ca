"""Conversion of streamed lines to records: history, system metrics and console."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from stepscope.dialects.wandb.receiver.client_json import read_json
from stepscope.dialects.wandb.wire import EVENT_VALUES
from stepscope.model.names import SEVERITIES
from stepscope.model.records import Event, Log, Metric, Record
from stepscope.wire.nested_rows import Definition, as_step, machine_values, nanoseconds, parts_by_axis, split_row

UNREADABLE = "a line that is not a JSON object"
_CONSOLE = re.compile(r"(ERROR )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?) ?(.*)", re.DOTALL)
_LEVEL = re.compile(r"\b(?:(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\w+(Warning):)")
_CHATTER = re.compile(r"wandb: |.*(?:\d%\||it/s|s/it)")
"""Harmless lines on stderr: the client's own lines, and progress bars."""
_OWN = ("_step", "_timestamp", "_runtime")
"""The fields that the client adds to each line."""
_BLOCK = 20_000
"""Lines that are parsed at a time."""
_FAR, _LATEST = 2**62, 2**33
"""Limits of steps, and of times in seconds since 1970."""
_parse = msgspec.json.Decoder(list[dict[str, Any]]).decode


@dataclass(slots=True)
class Decoded:
    """The records of some lines; `steps` and `times` are those of the history lines."""

    records: list[Record] = field(default_factory=list)
    rejected: int = 0
    times: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    tail: dict[str, Any] = field(default_factory=dict)
    """Step, time and runtime of the last line."""

    def add(self, later: "Decoded") -> None:
        """Add the records of later lines."""
        self.records += later.records
        self.rejected += later.rejected
        self.tail = later.tail or self.tail
        newer = bisect_left(later.times, self.times[-1]) if self.times else 0
        self.times += later.times[newer:]
        self.steps += later.steps[newer:]

    def step_at(self, time: int, before: int | None) -> int | None:
        """Return the step of the last history line up to a time; `before` when all are later."""
        at = bisect_right(self.times, time)
        return self.steps[at - 1] if at else before


def read_rows(lines: Sequence[str]) -> list[dict[str, Any] | None]:
    """Parse JSON lines, also with bare NaN and Infinity; None for a line that is not an object."""
    whole = f"[{','.join(lines)}]"  # a single call is several times faster than one for each line
    for parse in (_parse, read_json):
        try:
            found = parse(whole)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            continue
        if len(found) == len(lines) and {dict}.issuperset(map(type, found)):
            return list(found)
    return [read_row(line) for line in lines]


def read_row(line: str) -> dict[str, Any] | None:
    """Parse one line; None when it is not an object."""
    try:
        found = read_json(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def history_records(
    lines: Sequence[str], definitions: Sequence[Definition], now: int, before: int | None = None
) -> Decoded:
    """Convert history lines to metrics and events; a line without a step has the step `before` it."""
    decoded = Decoded()
    for block in _blocks(lines):
        part = _history_block(block, definitions, now, before)
        before = part.steps[-1] if part.steps else before
        decoded.add(part)
    return decoded


def _blocks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return lines in blocks: parsed, they take far more memory."""
    return (lines[at : at + _BLOCK] for at in range(0, len(lines), _BLOCK))


def _history_block(
    lines: Sequence[str], definitions: Sequence[Definition], now: int, before: int | None = None
) -> Decoded:
    rows = read_rows(lines)
    if rows and not definitions and (plain := _plain_records(rows)) is not None:
        return plain
    decoded = Decoded()
    step, own, times = before, None, decoded.times
    for row in rows:
        if row is None:
            decoded.rejected += 1
            continue
        own = _take_own(row)
        time, given = time_of(own[1], now), as_step(own[0])
        step = given if given is not None else step
        decoded.records += _records_of(row, time, step, definitions)
        if step is not None and (not times or time >= times[-1]):
            times.append(time)
            decoded.steps.append(step)
    decoded.tail = _tail(own)
    return decoded


def _records_of(row: dict[str, Any], time: int, step: int | None, definitions: Sequence[Definition]) -> list[Record]:
    values, others = split_row(row)
    found: list[Record] = []
    if values and not definitions:
        found.append(Metric(time, step, None, None, values))
    elif values:
        for axis, at, part in parts_by_axis(values, definitions):
            found.append(Metric(time, step if axis is None else at, axis, None, part))
    if others:
        found.append(Event(time, step, None, None, None, SEVERITIES["INFO"], EVENT_VALUES, others))
    return found


def _plain_records(rows: Sequence[dict[str, Any] | None]) -> Decoded | None:
    """Convert rows with the same keys and only numbers, as in most blocks, all at once; None for other rows."""
    full = [row for row in rows if row is not None]
    columns = _columns(full) if len(full) == len(rows) else {}
    if len(columns) <= len(_OWN) or not columns.keys() >= set(_OWN) or "_wandb" in columns:
        return None
    steps, stamps, _ = own = [columns[key] for key in _OWN]
    seconds = np.array(stamps, dtype=np.float64)
    if _kinds(steps) != {int} or not -_FAR < min(steps) <= max(steps) < _FAR:
        return None
    if not ((seconds > 0) & (seconds < _LATEST)).all() or (seconds[1:] < seconds[:-1]).any():
        return None
    whole = np.floor(seconds)
    times = (whole.astype(np.int64) * 10**9 + np.rint((seconds - whole) * 1e9).astype(np.int64)).tolist()
    for row in full:
        del row["_step"], row["_timestamp"], row["_runtime"]
    made = zip(times, steps, full, strict=True)
    records: list[Record] = [Metric(time, step, None, None, row) for time, step, row in made]
    return Decoded(records, 0, times, list(steps), _tail([column[-1] for column in own]))


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return rows as columns if all have the same keys in the same order and only storable numbers, else nothing."""
    keys = list(rows[0])
    if list(chain.from_iterable(rows)) != keys * len(rows):
        return {}
    columns = dict(zip(keys, zip(*[row.values() for row in rows], strict=True), strict=True))
    for column in columns.values():
        kinds = _kinds(column)
        # Comparisons with NaN are false, so that a NaN cannot hide a large integer.
        if not kinds <= {float, int} or (int in kinds and not max(map(abs, column)) < 2**63):
            return {}
    return columns


def _kinds(values: Iterable[Any]) -> set[type]:
    return set(map(type, values))


def _take_own(row: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Remove the client's own fields from a line: step, time and runtime."""
    row.pop("_wandb", None)
    return row.pop("_step", None), row.pop("_timestamp", None), row.pop("_runtime", None)


def _tail(own: Sequence[Any] | None) -> dict[str, Any]:
    named = zip(_OWN, own or (), strict=False)
    return {key: value for key, value in named if isinstance(value, (int, float))}


def machine_records(lines: Sequence[str], history: Decoded, before: int | None, now: int) -> Decoded:
    """Convert system metrics to metrics of the category `system`."""
    decoded = Decoded()
    for row in chain.from_iterable(map(read_rows, _blocks(lines))):
        if row is None:
            decoded.rejected += 1
            continue
        own = _take_own(row)
        time, decoded.tail = time_of(own[1], now), _tail(own)
        values = machine_values(split_row(row)[0])
        if values:
            decoded.records.append(Metric(time, history.step_at(time, before), None, "system", values))
    return decoded


def console_records(lines: Iterable[str], history: Decoded, before: int | None, now: int) -> list[Record]:
    """Convert console lines to logs; the client prefixes each with its time, and those of stderr with ERROR as well."""
    found: list[Record] = []
    for line in lines:
        matched = _CONSOLE.match(line)
        error, stamp, text = matched.groups() if matched is not None else (None, "", line)
        text = text.rstrip("\r\n")
        if text.strip():
            time = _stamp(stamp, now)
            severity = _stderr_severity(text) if error else SEVERITIES["INFO"]
            found.append(Log(time, history.step_at(time, before), None, None, None, severity, text, {}, "console"))
    return found


def _stderr_severity(text: str) -> int:
    """Return the severity of a stderr line: the level in its text, else ERROR unless it is harmless."""
    found = _LEVEL.search(text[:200])
    if found is not None:
        return SEVERITIES[found[1] or "WARN"]
    return SEVERITIES["INFO" if _CHATTER.match(text[:500]) else "ERROR"]


def _stamp(text: str, now: int) -> int:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError):
        return now


def time_of(seconds: Any, now: int) -> int:
    """Return the time of a line in nanoseconds; now when it has no valid one."""
    if isinstance(seconds, (int, float)) and 0 < seconds < _LATEST:  # neither NaN nor infinity
        return nanoseconds(seconds)
    return now
