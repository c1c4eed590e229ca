"""Plain text for a terminal: values, times, tables, sparklines, and the columns that a text takes."""

import math
import os
import re
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

from stepscope.journal.key_summary import resample
from stepscope.model.formatting import MISSING, quantity
from stepscope.model.invisible import escape_invisible

_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"
_PLAIN = re.compile("[\x00-\u02ff\u2010-\u20cf\u2100-\u22ff\u2500-\u25fc\u2800-\u28ff]*")
"""Characters of one column, but for marks that `escape_invisible` has replaced."""
_PIECE = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}"
    f"|.[\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff]*(?:{_JOINER}.[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]*)*",
    re.DOTALL,
)


def columns_of(text: str) -> int:
    """Count the columns of a text without control characters."""
    return len(text) if _PLAIN.fullmatch(text) else sum(map(_columns, pieces(text)))


def pieces(text: str) -> list[str]:
    """Split a text where it may be cut: an emoji of several characters stays whole."""
    return _PIECE.findall(text)


def _columns(piece: str) -> int:
    first = piece[0]
    if len(piece) > 1 and (_AS_EMOJI in piece or _JOINER in piece or not unicodedata.category(first).startswith("L")):
        return 2
    if unicodedata.category(first) in ("Mn", "Me", "Cf") or "\u1160" <= first <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(first) in "WF" else 1


WIDTH = 100
_BARS = "▁▂▃▄▅▆▇█"
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_TONES = {
    **dict.fromkeys(("running", "importing"), "green"),
    **dict.fromkeys(("stalled", "preempted", "WARN"), "yellow"),
    **dict.fromkeys(("failed", "crashed", "ERROR", "FATAL"), "red"),
    "INFO": "cyan",
    "muted": "dim",
}
_FIRST = re.compile(r"\s*(\w+)\s")
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def width() -> int:
    """The width of the terminal, or 100."""
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, 60)
    except (OSError, ValueError):
        return WIDTH


def coloured() -> bool:
    """Whether output has colours: it goes to a terminal that has them, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """Give a text a style where output has colours."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and text and coloured() else text


def tinted(word: str) -> str:
    """Colour a state or a severity, and a value that is not finite."""
    return paint(word, "red" if word.startswith("!") else _TONES.get(word.partition(" ")[0], ""))


def tinted_line(line: str) -> str:
    """Colour a line: a severity at its beginning, or all of a heading."""
    if line.isupper() and line[:1].strip():
        return paint(line, "bold")
    found = _FIRST.match(line)
    return line if found is None else line[: found.start(1)] + tinted(found[1]) + line[found.end(1) :]


def number(value: Any) -> str:
    """Format a number, marked with `!` when it is not finite."""
    return value_of("", value)


def value_of(key: str, value: Any, unit: str = "") -> str:
    """Format the value of a metric, bytes as such, marked with `!` when it is not finite."""
    odd = isinstance(value, str) or (isinstance(value, float) and not math.isfinite(value))
    return "!" * odd + clean(quantity(value, key, unit))


def moment(ns: int | None) -> str:
    """Format a date and time, in local time."""
    return MISSING if not ns else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ns / 1e9))


def iso(ns: int | None) -> str | None:
    """Format a time as ISO 8601, in UTC."""
    if not ns:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9)) + f".{ns % 10**9 // 1000:06d}Z"


def clean(text: str) -> str:
    """Make a text safe on one line of a terminal: no line ends, no control sequences, nothing that cannot be seen."""
    shown = _UNSHOWN.sub(lambda found: {"\n": "⏎", "\t": " ", "\r": ""}.get(found[0], "\ufffd"), text)
    return escape_invisible(shown)


def clean_lines(text: str) -> str:
    """Make a text of several lines safe for a terminal."""
    return "\n".join(map(clean, text.split("\n")))


def cut(text: str, columns: int) -> str:
    """Shorten a text to some columns."""
    if columns_of(text) <= columns:
        return text
    kept, room = "", max(columns - 1, 0)
    for piece in pieces(text):
        room -= columns_of(piece)
        if room < 0:
            break
        kept += piece
    return kept + "…"


def fill(text: str, columns: int) -> str:
    """Shorten a text to some columns, or fill them with spaces."""
    shown = cut(text, columns)
    return shown + " " * (columns - columns_of(shown))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, limits: dict[str, int] | None = None) -> list[str]:
    """Align rows under their headings, to the right under those that begin with `>`; truncate columns with a limit.

    States and values that are not finite are coloured where output has colours.
    """
    names = [name.lstrip(">") for name in head]
    bounds = [(limits or {}).get(name, 1000) for name in names]
    body = [[cut(clean(cell), bound) for cell, bound in zip(row, bounds, strict=True)] for row in rows]
    widths = [max(columns_of(row[column]) for row in [names, *body]) for column in range(len(names))]
    shown = [[paint(name, "bold") for name in names], *([tinted(cell) for cell in row] for row in body)]
    lines = []
    for row, cells in zip([names, *body], shown, strict=True):
        room = [" " * (wide - columns_of(cell)) for wide, cell in zip(widths, row, strict=True)]
        pads = zip(head, room, cells, strict=True)
        parts = [f"{gap}{cell}" if name.startswith(">") else f"{cell}{gap}" for name, gap, cell in pads]
        lines.append("  ".join(parts).rstrip())
    return lines


def spark(points: list[float], columns: int = 24) -> str:
    """Draw values as bars, the maximum of each interval; `!` where one was not finite."""
    drawn = resample(points, columns)
    finite = [value for value in drawn if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if math.isfinite(value) else "!" for value in drawn)
