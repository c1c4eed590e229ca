"""Numbers, sizes and durations as text: terminal, reports and findings format them as the page does."""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

MISSING = "–"
"""Shown where there is no value."""
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FULL = 10**6
"""Integers below this are written in full; larger numbers have an exponent."""
_SMALLEST = Decimal("0.001")
"""Numbers below this have an exponent."""
_COUNTS = ("", "k", "M", "G", "T", "P", "E")
_BYTES = (" B", " kB", " MB", " GB", " TB", " PB", " EB")
_BRIEF, _BRIEF_DIGITS = 10_000, 5
_DAY = 86_400
_BYTE_UNITS = frozenset(("By", "B", "bytes", "byte"))


def number(value: Any, digits: int = 4) -> str:
    """Format a number with some significant digits: `0.5`, `12,345`, `7.68e10`, `3e-4`, `NaN`, `Inf`.

    Integers below a million keep all their digits. JSON's words for non-finite numbers are accepted.
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        if value not in _WORDS:
            return value
        value = _WORDS[value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    if abs(value) < _FULL and value == int(value):
        return f"{int(value):,}"
    exact = Decimal(value)
    rounded = _rounded(exact, digits)
    power = rounded.adjusted()
    if abs(rounded) >= _FULL or abs(rounded) < _SMALLEST:
        return f"{_short(rounded.scaleb(-power))}e{power}"
    places = max(digits - 1 - power, 0)
    return _short(exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP))


def signed(value: Any, digits: int = 4) -> str:
    """Format a difference: a number with its sign."""
    text = number(value, digits)
    return f"+{text}" if isinstance(value, (int, float)) and value > 0 else text


def count(value: int | None) -> str:
    """Format a count in full: `1,234,567`."""
    return MISSING if value is None else f"{value:,}"


def amount(value: int, noun: str) -> str:
    """Format a count with its noun: `1 record`, `1,234 records`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def brief(value: float | None, digits: int = 3) -> str:
    """Format a count briefly: `9,999`, `12.3k`, `1.23M`."""
    if value is None:
        return MISSING
    return number(value, digits) if abs(value) < _BRIEF else _scaled(value, _COUNTS, digits)


def ordinal(value: int | None) -> str:
    """Format a number that identifies something (a step, a rank, a process): as commands and addresses take it."""
    return MISSING if value is None else str(int(value))


def size(value: float | None, digits: int = 3) -> str:
    """Format bytes in powers of ten: `999 B`, `1.5 kB`, `80 GB`."""
    return MISSING if value is None else _scaled(value, _BYTES, digits)


def duration(seconds: float | None) -> str:
    """Format a duration: `12.3 ms`, `59.5 s`, `5m 06s`, `3h 04m`, `2d 03h`."""
    if seconds is None or not math.isfinite(seconds):
        return number(seconds)
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds == 0:
        return "0 s"
    for factor, unit, limit in ((1e9, "ns", 1000), (1e6, "µs", 1000), (1e3, "ms", 1000), (1.0, "s", 60)):
        if _rounded(Decimal(seconds * factor), 3) < limit:
            return f"{number(seconds * factor, 3)} {unit}"
    if seconds >= 10_000 * _DAY:
        return f"{number(seconds / _DAY)} d"
    rounded = math.floor(seconds + 0.5)
    if rounded < 3600:
        return f"{rounded // 60}m {rounded % 60:02d}s"
    if rounded < _DAY:
        return f"{rounded // 3600}h {rounded // 60 % 60:02d}m"
    return f"{rounded // _DAY}d {rounded // 3600 % 24:02d}h"


def ratio(value: float | None) -> str:
    """Format a ratio to the usual value: `×1.5`, `×140`."""
    return "" if value is None else f"×{number(value, 2)}"


def percent(share: float | None) -> str:
    """Format a fraction as a percentage: `12.5 %`."""
    if share is None:
        return MISSING
    return "< 0.1 %" if 0 < share < 0.001 else f"{number(100 * share, 3)} %"


def quantity(value: Any, key: str = "", unit: str = "", digits: int = 4) -> str:
    """Format the value of a metric: as bytes where its unit or the end of its name means bytes."""
    per = bytes_of(key, unit)
    if per is None or not isinstance(value, (int, float)) or not math.isfinite(value):
        return number(value, digits)
    return size(value) + per


def bytes_of(key: str, unit: str) -> str | None:
    """Return whether a metric is in bytes: `` for an amount, `/s` for a rate, None for anything else."""
    plain, _, per = unit.partition("/")
    if plain in _BYTE_UNITS:
        return f"/{per}" if per else ""
    if unit:
        return None
    return "" if key.endswith("_bytes") else "/s" if key.endswith("_bytes_per_second") else None


def ticks(values: Sequence[float], write: Callable[[float, int], str] = number) -> list[str]:
    """Format the ticks of an axis with as few digits as distinguish them."""
    texts: list[str] = []
    for digits in range(3, 18):
        texts = [write(value, digits) for value in values]
        if len(set(texts)) >= len(set(values)):
            break
    return texts


def step_ticks(values: Sequence[float]) -> list[str]:
    """Format steps along an axis: briefly where that distinguishes them, else in full."""
    return ticks(values, lambda value, digits: count(int(value)) if digits > _BRIEF_DIGITS else brief(value, digits))


def _scaled(value: float, units: tuple[str, ...], digits: int) -> str:
    """Format a number in the first unit in which it is below a thousand once rounded, else in the last."""
    if not math.isfinite(value):
        return number(value)
    at = 0
    while at < len(units) - 1 and abs(_rounded(Decimal(value / 1000.0**at), digits)) >= 1000:
        at += 1
    return number(value / 1000.0**at, digits) + units[at]


def _rounded(value: Decimal, digits: int) -> Decimal:
    return Context(prec=digits, rounding=ROUND_HALF_UP).plus(value)


def _short(value: Decimal) -> str:
    """Format a decimal in full, with separators and without trailing zeros."""
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
