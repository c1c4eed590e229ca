"""What a dashboard is, read from YAML; a mistake is told with its line."""

import math
import re
from typing import Any, Literal

import msgspec
import yaml

from stepscope.model.errors import StepscopeError
from stepscope.wire import yaml_text

LONGEST = 64 * 1024
MOST_CHARTS, MOST_KEYS = 64, 32
_DEEPEST = 20
Axis = Literal["step", "time", "relative"]


class Mistake(StepscopeError):
    """The text is no dashboard; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class Band(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"low": "from", "high": "to"}):
    """A stretch of y that means something; without an end it goes on."""

    low: float | None = None
    high: float | None = None
    level: Literal["good", "note", "warning", "critical"] = "note"
    label: str = ""


class Chart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chart. `keys` are metrics and `spans` names of spans, whose durations are drawn; `*` stands for anything."""

    title: str = ""
    keys: list[str] = []
    spans: list[str] = []
    quantiles: list[float] = []
    """Draw these quantiles of stretches of x, 0.5 being the median, instead of the values."""
    text: str = ""
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    x: Axis | None = None
    wide: bool = False
    bands: list[Band] = []


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Charts in the order in which they stand, two beside each other where there is room."""

    title: str
    charts: list[Chart]
    text: str = ""
    x: Axis = "step"


_READY = msgspec.json.Decoder(Dashboard)
"""Made here so that msgspec knows the types before threads do: two that teach it at once lock each other out (0.22)."""


def parse(text: str) -> Dashboard:
    """Read a dashboard; Mistake when it is none."""
    if len(text) > LONGEST:
        raise Mistake(f"a dashboard has at most {LONGEST} characters, and this has {len(text)}")
    node = _compose(text)
    if node is None:
        raise Mistake("there is nothing here: write a title and a list of charts")
    value = _value(node, _DEEPEST)
    try:
        made = msgspec.convert(value, Dashboard)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise Mistake(_plainer(message), *_place(_blamed(_find(node, path.strip("`")), message).start_mark)) from None
    _check(made, node)
    return made


def _compose(text: str) -> Any:
    """The nodes of a text. Names for parts of it could make a small text endless, so they are refused."""
    try:
        for event in yaml.parse(text, Loader=yaml_text.Loader):
            if isinstance(event, yaml.AliasEvent):
                raise Mistake("parts cannot be repeated by name here", *_place(event.start_mark))
        return yaml.compose(text, Loader=yaml_text.Loader)
    except yaml.MarkedYAMLError as error:
        said = ", ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        raise Mistake(said or "this is no YAML", *(_place(mark) if mark else (1, 1))) from None
    except yaml.YAMLError as error:
        raise Mistake(f"this is no YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise Mistake("this is nested too deeply") from None


def _place(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _value(node: Any, depth: int) -> Any:
    """What a node says, as plain data."""
    if depth == 0:
        raise Mistake("this is nested too deeply", *_place(node.start_mark))
    if isinstance(node, yaml.MappingNode):
        made: dict[str, Any] = {}
        for key, inner in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name or name in made:
                problem = f"{name} is given twice" if name else "a name must be a word"
                raise Mistake(problem, *_place(key.start_mark))
            made[name] = _value(inner, depth - 1)
        return made
    if isinstance(node, yaml.SequenceNode):
        return [_value(inner, depth - 1) for inner in node.value]
    return _scalar(node)


def _scalar(node: Any) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        said = getattr(error, "problem", None) or str(error)
        raise Mistake(f"{str(node.value)[:40]!r} cannot be read: {said}", *_place(node.start_mark)) from None
    finally:
        loader.dispose()


_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def _find(node: Any, path: str) -> Any:
    """The node at a path such as `$.charts[2].keys[0]`, or the last one on the way."""
    for name, index in _STEP.findall(path.removeprefix("$")):
        if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode):
            found = [inner for key, inner in node.value if key.value == name]
            if not found:
                return node
            node = found[0]
    return node


def _blamed(node: Any, message: str) -> Any:
    """The node to point at: of names with values the one that is not known, where that is the mistake."""
    unknown = re.search(r"unknown field `(.*)`", message)
    keys = node.value if unknown and isinstance(node, yaml.MappingNode) else ()
    return next((key for key, _ in keys if unknown and key.value == unknown[1]), node)


def _plainer(message: str) -> str:
    """A validation message in plain words."""
    words = {"Object missing required field": "this lacks", "Object contains unknown field": "there is no field"}
    for said, plain in words.items():
        message = message.replace(said, plain)
    kinds = {"`str`": "a text", "`int`": "a whole number", "`float`": "a number", "`array`": "a list"}
    kinds |= {"`object`": "names with values", "`bool`": "true or false", "`null`": "nothing"}
    kinds |= {"`float | null`": "a number", "`str | null`": "a word"}
    for said, plain in kinds.items():
        message = message.replace(said, plain)
    return message


def _check(made: Dashboard, node: Any) -> None:
    """What types alone do not say."""
    if len(made.charts) > MOST_CHARTS:
        raise Mistake(f"a dashboard has at most {MOST_CHARTS} charts", *_place(_find(node, "$.charts").start_mark))
    for number, chart in enumerate(made.charts):
        problem = _problem(chart)
        if problem:
            raise Mistake(problem, *_place(_find(node, f"$.charts[{number}]").start_mark))


def _problem(chart: Chart) -> str:
    if not chart.keys and not chart.spans:
        return "a chart needs keys or spans"
    if len(chart.keys) + len(chart.spans) > MOST_KEYS:
        return f"a chart has at most {MOST_KEYS} keys and spans"
    if any(not 0 <= each <= 1 for each in chart.quantiles) or len(chart.quantiles) > 8:
        return "quantiles are at most 8 numbers from 0 to 1"
    if any(not math.isfinite(end) for band in chart.bands for end in (band.low, band.high) if end is not None):
        return "the ends of a band are finite; leave one out for a band without end"
    return ""
