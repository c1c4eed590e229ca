"""One frame of a watched run: as many lines as the terminal has, none wider than it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepscope.cli import text
from stepscope.cli.record_lines import line
from stepscope.cli.watching.charts import chart
from stepscope.cli.watching.hub_view import HubView
from stepscope.journal.key_summary import importance
from stepscope.journal.watched import KEPT, Watched
from stepscope.model import formatting
from stepscope.model.names import severity_word
from stepscope.model.records import Alert, Event, Log

MIN_COLUMNS, MIN_ROWS = 40, 10
_CHART_COLUMNS = 38
_CHART_ROWS = 5
"""The height of a chart, with its title."""
_LOUD = {"FATAL": "bold red", "ERROR": "red", "WARN": "yellow"}
_STATUS = {"running": "bold green", "finished": "green", "crashed": "bold red", "failed": "bold red"}

Found: TypeAlias = Sequence[Mapping[str, Any]]
"""Findings, as the hub answers them."""
RunView: TypeAlias = Watched | HubView
"""A run as a frame shows it, from its journals or from a hub."""


@dataclass(frozen=True, slots=True)
class Styled:
    """A line and how it looks."""

    text: str
    style: str = ""


@dataclass(slots=True)
class View:
    """The display options chosen by the user."""

    page: int = 0
    log: bool = False


def frame(watched: RunView, status: str, found: Found, view: View, columns: int, rows: int) -> list[Styled]:
    """Draw everything there is room for: charts first, then what went wrong, what is open, the last logs."""
    columns, rows = max(columns, MIN_COLUMNS), max(rows, MIN_ROWS)
    head = _head(watched, status)
    problems = _problems(watched, found)
    spans = _open(watched)
    logs_wanted = max(rows // 4, 2)
    room = rows - len(head) - 1 - min(len(problems), rows // 5 + 1) - len(spans) - logs_wanted
    lines = [*head, *_charts(watched, view, columns, room)]
    lines += problems[: rows // 5 + 1] + spans
    last = rows - len(lines) - 1
    lines += [Styled(""), *_logs(watched, last - 1)] if last > 1 else []
    lines = lines[: rows - 1] + [Styled("")] * (rows - 1 - len(lines))
    shown = [Styled(text.cut(each.text, columns), each.style) for each in lines]
    return [*shown, Styled(text.cut(_keys(watched, view), columns), "dim")]


def _head(watched: RunView, status: str) -> list[Styled]:
    who = next(iter(watched.newest), None)
    name = f"{who.project}/{who.name}" if who is not None and who.name else who.project if who is not None else ""
    pace = watched.steps_per_second(status)
    ranks = {each.rank for each in watched.newest}
    parts = [
        f"{text.clean(name)}  {status}",
        f"step {formatting.ordinal(watched.step)}",
        f"{formatting.number(pace, 3)} steps/s" if pace is not None else "",
        f"{len(ranks)} rank{'s' * (len(ranks) != 1)}",
        f"attempt {who.attempt}" if who is not None and who.attempt > 1 else "",
        formatting.duration(watched.seconds),
    ]
    return [Styled("   ".join(part for part in parts if part), _STATUS.get(status, "bold"))]


def ordered(watched: RunView) -> list[str]:
    """The keys in the order in which they are shown."""
    return sorted(watched.keys, key=lambda key: (importance(key), not key.startswith("trainer/"), key))


def _grid(columns: int, room: int) -> tuple[int, int]:
    """How many charts fit beside and above each other."""
    return max(columns // (_CHART_COLUMNS + 2), 1), max(room // _CHART_ROWS, 0)


def _charts(watched: RunView, view: View, columns: int, room: int) -> list[Styled]:
    across, down = _grid(columns, room)
    keys = ordered(watched)
    if not keys:
        return [Styled("no metrics yet", "dim")] if room > 0 else []
    down = min(down, -(-len(keys) // across))
    per_page = across * down
    if not per_page:
        return []
    view.page %= -(-len(keys) // per_page)
    trends = watched.trends(keys[view.page * per_page : (view.page + 1) * per_page])
    wide = (columns - 2 * (across - 1)) // across
    tall = min(room // down, _CHART_ROWS * 2)
    lines: list[Styled] = []
    for start in range(0, len(trends), across):
        drawn = [chart(trend, wide, tall - 1, log=view.log) for trend in trends[start : start + across]]
        for at, row in enumerate(zip(*drawn, strict=True)):
            lines.append(Styled("  ".join(f"{cell:<{wide}}" for cell in row), "bold" if at == 0 else "cyan"))
    return lines


def _problems(watched: RunView, found: Found) -> list[Styled]:
    # Alerts follow one by one, with their steps.
    loud = [each for each in found if each["kind"] != "alert" and not each["muted"]]
    lines = [Styled(f"! {each['text']}", _LOUD[each["severity"]]) for each in loud]
    groups: dict[tuple[str, int | None], list[tuple[int, str]]] = {}
    for who, alert in reversed(watched.alerts.last(KEPT)):
        message = f"{alert.name}: {alert.message}" if isinstance(alert, Alert) and alert.message else ""
        groups.setdefault((_name(alert), alert.step), []).append((who.rank, message or _name(alert)))
    for (_, step), told_by in groups.items():
        ranks = sorted({rank for rank, _ in told_by})
        place = f" at step {step}" if step is not None else ""
        on = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        lines.append(Styled(text.clean(f"alert {told_by[0][1]}{place}{on}"), "magenta"))
    return lines


def _name(record: Log | Event | Alert) -> str:
    return "" if isinstance(record, Log) else record.name


def _open(watched: RunView) -> list[Styled]:
    spans = watched.living_spans()
    if not spans:
        return []
    now = time.time_ns()
    message = [
        f"{span.name} r{who.rank} {formatting.duration(max(now - span.time, 0) / 1e9)}" for who, span in spans[:4]
    ]
    more = f" and {len(spans) - 4} more" if len(spans) > 4 else ""
    return [Styled(text.clean("open " + ", ".join(message) + more), "blue")]


def _logs(watched: RunView, count: int) -> list[Styled]:
    last = watched.logs.last(count)
    return [Styled(line(who, record), _LOUD.get(severity_word(record.severity), "")) for who, record in last]


def _keys(watched: RunView, view: View) -> str:
    scale = "linear" if view.log else "log"
    return f"q quit  n/p other metrics ({len(watched.keys)})  l {scale} scale   {watched.source}"
