"""The card of a run in a notebook."""

import math
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.key_summary import KeySummary, leading
from stepscope.journal.run_summary import RunSummary
from stepscope.journal.segments import Position, Tail
from stepscope.model import formatting
from stepscope.model.ports import Batch
from stepscope.sdk.run_protocols import Part

SHOWN = 8
"""Metrics on the card."""
READ_SECONDS = 1.0
"""Time limit for reading journals for a card."""
WRITERS = 16
_WIDE, _TALL = 120, 20


def card(run: Part) -> str:
    """Return a run as HTML; only the newest segment of each writer is read."""
    summary = _read(run.home, run.id, time.monotonic() + READ_SECONDS)
    name = f"{run.project}/{run.name}" if run.name else run.project
    facts = [
        f"<b>{escape(name)}</b>",
        escape(run.id),
        escape(run.status),
        f"step {summary.last_step}" if summary.last_step is not None else "no steps yet",
        f"rank {run.rank} of {run.launch.world_size}",
    ]
    alerts = summary.alerts.total()
    if alerts:
        facts.append(f"<b style='color:#cf222e'>{alerts} alert{'s' * (alerts > 1)}</b>")
    keys = [key for key in summary.keys if not key.startswith(("system/", "stepscope/"))]
    rows = "".join(_row(summary.keys[key]) for key in leading(keys, SHOWN))
    table = f"<table style='margin:4px 0 0'>{rows}</table>" if rows else ""
    more = len(keys) - SHOWN
    rest = f"<div style='opacity:.7'>and {more} more metrics; " if more > 0 else "<div style='opacity:.7'>"
    hint = f"{rest}<code>stepscope show {escape(run.id)} --home {escape(str(run.home))}</code></div>"
    return f"<div style='font-size:13px'>{' &middot; '.join(facts)}{table}{hint}</div>"


def _read(home: Path, run: str, deadline: float) -> RunSummary:
    summary = RunSummary(run=run)
    for name in layout.list_writers(home, run)[:WRITERS]:
        for batch in _newest(layout.writer_folder(home, run, name)):
            summary.take(batch)
            if time.monotonic() > deadline:
                return summary
    return summary


def _newest(folder: Path) -> Iterator[Batch]:
    segments = layout.list_segments(folder)
    if segments:
        yield from Tail(folder, Position(segment=int(segments[-1].stem))).read_all()


def _row(key: KeySummary) -> str:
    cells = [
        escape(key.key),
        formatting.number(key.last),
        f"{formatting.number(key.low)} &hellip; {formatting.number(key.high)}",
    ]
    bad = f" <b style='color:#cf222e'>{key.non_finite} not finite</b>" if key.non_finite else ""
    line = _spark(key.curve.points) if key.curve is not None else ""
    tds = "".join(f"<td style='text-align:left;padding:0 12px 0 0'>{cell}</td>" for cell in cells)
    return f"<tr style='background:none'>{tds}<td>{line}{bad}</td></tr>"


def _spark(points: list[float]) -> str:
    """Return a sparkline of a metric, with a red mark at values that are not finite."""
    finite = [value for value in points if math.isfinite(value)]
    if len(points) < 2 or not finite:
        return ""
    low, half = min(finite), max(finite) / 2 - min(finite) / 2  # the range of two floats may be no float
    step = _WIDE / (len(points) - 1)
    places = [
        (round(at * step, 1), _TALL - 2 - (_TALL - 4) * ((value / 2 - low / 2) / half if half > 0 else 0.5))
        for at, value in enumerate(points)
        if math.isfinite(value)
    ]
    marks = "".join(
        f"<path d='M{round(at * step, 1)} 0V{_TALL}' stroke='#cf222e'/>"
        for at, value in enumerate(points)
        if not math.isfinite(value)
    )
    line = " ".join(f"{x},{y:.1f}" for x, y in places)
    return (
        f"<svg width='{_WIDE}' height='{_TALL}' viewBox='0 0 {_WIDE} {_TALL}'>"
        f"<polyline points='{line}' fill='none' stroke='#0969da'/>{marks}</svg>"
    )
