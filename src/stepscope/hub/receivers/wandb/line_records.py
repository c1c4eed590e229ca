"""Streamed lines as records: history, system metrics and console."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from stepscope.model.names import SEVERITIES
from stepscope.model.records import Event, Log, Metric, Record
from stepscope.wire.wandb_rows import Definition, as_step, machine_values, nanoseconds, parts_by_axis, split_row

UNREADABLE = "a line that is no JSON object"
EVENT_VALUES = "wandb.values"
"""What a history line has beside numbers: texts, lists, and media as objects that name their files."""
_CONSOLE = re.compile(r"(ERROR )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?) ?(.*)", re.DOTALL)
_parse = msgspec.json.Decoder(list[dict[str, Any]]).decode


@dataclass(slots=True)
class Decoded:
    """The records of some lines; `steps` and `times` are those of the history lines."""

    records: list[Record] = field(default_factory=list)
    rejected: int = 0
    times: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    tail: dict[str, Any] = field(default_factory=dict)
    """What the last line says of itself: step, time and runtime."""

    def step_at(self, time: int, before: int | None) -> int | None:
        """Return the step of the last history line up to a time; `before` when all are later."""
        at = bisect_right(self.times, time)
        return self.steps[at - 1] if at else before


def read_rows(lines: Sequence[str]) -> Iterable[dict[str, Any] | None]:
    """Parse JSON lines, also with bare NaN and Infinity; None for a line that is not an object."""
    try:
        found = _parse(f"[{','.join(lines)}]")  # a single call is several times faster than one for each
        if len(found) == len(lines):
            return found
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return map(read_row, lines)


def read_row(line: str) -> dict[str, Any] | None:
    """Parse one line; None when it is not an object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def history_records(
    lines: Sequence[str], definitions: Sequence[Definition], now: int, before: int | None = None
) -> Decoded:
    """Convert history lines to metrics and events; a line without a step has the step `before` it."""
    decoded = Decoded()
    step, records, last = before, decoded.records, None
    for row in read_rows(lines):
        if row is None:
            decoded.rejected += 1
            continue
        last = own = _take_own(row)
        time, given = time_of(own[1], now), as_step(own[0])
        step = given if given is not None else step
        values, others = split_row(row)
        if values and not definitions:
            records.append(Metric(time, step, None, None, values))
        elif values:
            for axis, at, part in parts_by_axis(values, definitions):
                records.append(Metric(time, step if axis is None else at, axis, None, part))
        if others:
            records.append(Event(time, step, None, None, None, SEVERITIES["INFO"], EVENT_VALUES, others))
        if step is not None and (not decoded.times or time >= decoded.times[-1]):
            decoded.times.append(time)
            decoded.steps.append(step)
    decoded.tail = _tail(last)
    return decoded


def _take_own(row: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Remove the client's own fields from a line: step, time and runtime."""
    row.pop("_wandb", None)
    return row.pop("_step", None), row.pop("_timestamp", None), row.pop("_runtime", None)


def _tail(own: tuple[Any, Any, Any] | None) -> dict[str, Any]:
    named = zip(("_step", "_timestamp", "_runtime"), own or (), strict=False)
    return {key: value for key, value in named if isinstance(value, (int, float))}


def machine_records(lines: Sequence[str], history: Decoded, before: int | None, now: int) -> Decoded:
    """Convert system metrics to metrics of the category `system`."""
    decoded = Decoded()
    for row in read_rows(lines):
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
    """Convert console lines to logs; the client prefixes each with its time, and those of stderr with ERROR."""
    found: list[Record] = []
    for line in lines:
        matched = _CONSOLE.match(line)
        error, stamp, text = matched.groups() if matched is not None else (None, "", line)
        text = text.rstrip("\r\n")
        if text.strip():
            time = _stamp(stamp, now)
            severity = SEVERITIES["ERROR" if error else "INFO"]
            found.append(Log(time, history.step_at(time, before), None, None, None, severity, text, {}, "console"))
    return found


def _stamp(text: str, now: int) -> int:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError):
        return now


def time_of(seconds: Any, now: int) -> int:
    """Return the time of a line in nanoseconds; now when it has no valid one."""
    if isinstance(seconds, (int, float)) and 0 < seconds < 2**33:  # neither NaN nor infinity
        return nanoseconds(seconds)
    return now
