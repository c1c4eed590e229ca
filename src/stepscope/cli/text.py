"""Plain text for people: numbers, sizes, times, tables, sparklines."""

import math
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from stepscope.journal.series import resample

WIDTH = 100
_BARS = "▁▂▃▄▅▆▇█"
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def width() -> int:
    """The columns there are: those of the terminal, or 100."""
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, 60)
    except (OSError, ValueError):
        return WIDTH


def number(value: Any) -> str:
    """Show a number in few characters; one that is not finite is marked, also where it is a word, as in JSON."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            return "!NaN" if math.isnan(value) else "!Inf" if value > 0 else "!-Inf"
        return f"{value:.5g}"
    return clean(f"!{value}")


def value_of(key: str, value: Any) -> str:
    """Show the value of a key, bytes as such."""
    counted = key.endswith(("_bytes", "_bytes_per_second")) and isinstance(value, (int, float)) and math.isfinite(value)
    if not counted:
        return number(value)
    return size(value) + ("/s" if key.endswith("_per_second") else "")


def size(count: float) -> str:
    """Show a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def lasted(seconds: float | None) -> str:
    """Show a duration."""
    if seconds is None:
        return "-"
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (99.95, 1, "s")):
        if seconds < limit:
            return f"{seconds * factor:.3g}{unit}"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 100 else f"{hours // 24}d{hours % 24:02d}h"


def moment(ns: int | None) -> str:
    """Show a time of day with its date, in local time."""
    return "-" if not ns else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ns / 1e9))


def iso(ns: int | None) -> str | None:
    """Write a time for programs, in UTC."""
    if not ns:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9)) + f".{ns % 10**9 // 1000:06d}Z"


def clean(text: str) -> str:
    """Make a text safe on one line of a terminal: no line ends, no control sequences."""
    return _UNSHOWN.sub(lambda found: {"\n": "⏎", "\t": " ", "\r": ""}.get(found[0], "\ufffd"), text)


def cut(text: str, columns: int) -> str:
    """Shorten a text to some columns."""
    return text if len(text) <= columns else text[: max(columns - 1, 0)] + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, limits: dict[str, int] | None = None) -> list[str]:
    """Align rows under their headings, right under those that begin with `>`; cut columns with a limit."""
    names = [name.lstrip(">") for name in head]
    bounds = [(limits or {}).get(name, 1000) for name in names]
    body = [[cut(clean(cell), bound) for cell, bound in zip(row, bounds, strict=True)] for row in rows]
    widths = [max(len(row[column]) for row in [names, *body]) for column in range(len(names))]
    pads = [str.rjust if name.startswith(">") else str.ljust for name in head]
    return [
        "  ".join(pad(cell, wide) for pad, cell, wide in zip(pads, row, widths, strict=True)).rstrip()
        for row in [names, *body]
    ]


def spark(points: list[float], columns: int = 24) -> str:
    """Draw values as bars, the highest of each stretch; `!` where one was not finite."""
    drawn = resample(points, columns)
    finite = [value for value in drawn if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if math.isfinite(value) else "!" for value in drawn)
