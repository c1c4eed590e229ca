"""Dashboards: their format in YAML, the built-in ones, and a user's own, HOME/dashboards/NAME.yaml with one hub."""

import math
import re
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import msgspec

from stepscope.hub.dashboards.metric_expression import BadExpression, parse_expression
from stepscope.hub.texts import Texts
from stepscope.wire.yaml_structs import Document, read
from stepscope.wire.yaml_structs import Mistake as Mistake

LONGEST = 64 * 1024
MAX_CHARTS, MAX_KEYS, MAX_EXPRESSIONS = 64, 32, 8
Axis = Literal["step", "time", "relative"]


class Band(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"low": "from", "high": "to"}):
    """A range of y that is highlighted; without an end it is open."""

    low: float | None = None
    high: float | None = None
    level: Literal["good", "note", "warning", "critical"] = "note"
    label: str = ""


class Chart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chart. `keys` are metrics and `spans` span names, whose durations are drawn; `*` matches anything."""

    title: str = ""
    keys: list[str] = []
    spans: list[str] = []
    expressions: list[str] = []
    """Expressions of metrics, such as `{val/loss} - {train/loss}`, a line for each."""
    quantiles: list[float] = []
    """Draw these quantiles of intervals of x, 0.5 being the median, instead of the values."""
    text: str = ""
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    x: Axis | None = None
    wide: bool = False
    bands: list[Band] = []


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Charts in order, two beside each other where there is room, below a text in Markdown, which may hold charts."""

    title: str
    charts: list[Chart]
    text: str = ""
    x: Axis = "step"


_READY = msgspec.json.Decoder(Dashboard)
"""Created at import so that msgspec knows the types before threads do: two threads at once deadlock (0.22)."""


def parse(text: str) -> Dashboard:
    """Read a dashboard; Mistake when it is invalid."""
    document = read(text, Dashboard, longest=LONGEST, what="a dashboard", example="a title and a list of charts")
    _check(document)
    return document.value


def _check(document: Document[Dashboard]) -> None:
    """Check what types alone do not."""
    if len(document.value.charts) > MAX_CHARTS:
        raise document.mistake(f"a dashboard has at most {MAX_CHARTS} charts", "$.charts")
    if not document.value.charts and not document.value.text.strip():
        raise document.mistake("a dashboard needs charts or a text", "$.charts")
    for number, chart in enumerate(document.value.charts):
        problem = _problem(chart)
        if problem:
            raise document.mistake(problem, f"$.charts[{number}]")


def _problem(chart: Chart) -> str:
    if not chart.keys and not chart.spans and not chart.expressions:
        return "a chart needs keys, spans or expressions"
    if len(chart.keys) + len(chart.spans) > MAX_KEYS or len(chart.expressions) > MAX_EXPRESSIONS:
        return f"a chart has at most {MAX_KEYS} keys and spans, and {MAX_EXPRESSIONS} expressions"
    for expression in chart.expressions:
        try:
            parse_expression(expression)
        except BadExpression as error:
            return f"{expression!r}: {error}"
    if any(not 0 <= each <= 1 for each in chart.quantiles) or len(chart.quantiles) > 8:
        return "quantiles are at most 8 numbers from 0 to 1"
    if any(not math.isfinite(end) for band in chart.bands for end in (band.low, band.high) if end is not None):
        return "the ends of a band are finite; leave one out for a band without end"
    return ""


BUILTIN = ("rl", "service", "system")
MOST = 500
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a dashboard."""

    name: str
    text: str
    builtin: bool


class Full(OSError):
    """The limit on the number of dashboards is reached."""


class Dashboards:
    """The built-in dashboards and a user's own; ValueError for a name that could be a path."""

    def __init__(self, own: Texts) -> None:
        self._own = own

    def names(self) -> list[str]:
        """List all dashboards, the built-in ones first."""
        saved = [name for name in self._own.names() if is_name(name)]
        return [*BUILTIN, *(name for name in saved if name not in BUILTIN)]

    def read(self, name: str) -> Source | None:
        """Read a dashboard; None when there is none."""
        if name in BUILTIN:
            return Source(name, builtin(name), builtin=True)
        text = self._own.read(_checked(name))
        return None if text is None else Source(name, text, builtin=False)

    def write(self, name: str, text: str, version: str | None = None) -> None:
        """Save a dashboard, as `Texts.save` does."""
        if _checked(name) not in self.names() and len(self.names()) >= MOST:
            raise Full(f"there are {MOST} dashboards already: delete some")
        self._own.save(name, text, version)

    def delete(self, name: str) -> bool:
        """Delete a dashboard; False when there is none."""
        return self._own.delete(_checked(name))


def _checked(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{name[:80]!r} is not a valid dashboard name")
    return name


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a dashboard."""
    return _NAME.fullmatch(text) is not None


def builtin(name: str) -> str:
    """The text of a built-in dashboard."""
    return (resources.files("stepscope.hub.dashboards") / "builtin" / f"{name}.yaml").read_text("utf-8")
