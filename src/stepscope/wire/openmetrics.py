"""OpenMetrics text: names, labels and numbers in Prometheus's syntax, and families of samples."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from stepscope.model import names
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Summary
from stepscope.wire.otlp.names import STEPS
from stepscope.wire.plain import dumps

LONGEST_VALUE = 1024
"""The most characters of a label's value; longer ones are truncated."""

_ODD = re.compile(r"[^a-zA-Z0-9_]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_NOT_LABELS = frozenset((*STEPS, ATTR_EXEMPLARS, names.ATTR_SAMPLE_RATE, names.ATTR_SET_MEMBER))
_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


@lru_cache(maxsize=10_000)
def metric_name(key: str, namespace: str = "") -> str:
    """Convert a key to a metric name: `trainer/loss` is `ns_trainer_loss`; an existing namespace is not repeated."""
    name = _legal_name(key)
    prefix = f"{_legal_name(namespace)}_" if namespace else ""
    name = name if name.startswith(prefix) else prefix + name
    return name if not name[:1].isdigit() else f"_{name}"


def label_name(key: str) -> str:
    """Convert a name to a label name; a prefix of two underscores is reserved by Prometheus."""
    name = re.sub(r"^_+", "", _legal_name(key)) or "_"
    return name if not name[:1].isdigit() else f"_{name}"


def _legal_name(key: str) -> str:
    # An underscore for each foreign letter would make one metric of many.
    return _ODD.sub("_", _FOREIGN.sub(lambda found: f"u{ord(found[0]):04x}", key))


def labels_of(attrs: Attrs, reserved: Collection[str] = ()) -> tuple[dict[str, str], int]:
    """Convert attributes to labels, and count those whose label name is taken or reserved.

    A step is no label, for each value would be a series. The values of attributes that share a label are joined by
    semicolons, in the order of the attributes' names; one with a reserved name is called `exported_...`.
    """
    labels: dict[str, str] = {}
    clashes = 0
    for key in sorted(attrs) if len(attrs) > 1 else attrs:
        if key in _NOT_LABELS:
            continue
        name, value = label_name(key), label_value(attrs[key])
        if name in reserved:
            name, clashes = f"exported_{name}", clashes + 1
        if name in labels:
            value, clashes = f"{labels[name]};{value}", clashes + 1
        labels[name] = value
    return labels, clashes


def label_value(value: Any) -> str:
    """Convert a value to a label value, unescaped."""
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else dumps(value, indent=None)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def write_labels(labels: Mapping[str, str]) -> str:
    """Write labels in braces, escaped; nothing when there are none."""
    if not labels:
        return ""
    written = ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
    return f"{{{written}}}"


def write_help(text: str, *, quotes: bool) -> str:
    """Escape a description; OpenMetrics escapes quotes too."""
    return text.translate(_LABEL_ESCAPES if quotes else _HELP_ESCAPES)


def write_number(value: int | float) -> str:
    """Write a value; NaN and infinities have their own words."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, float) else str(int(value))


Format = Literal["openmetrics", "text"]
CONTENT_TYPES: dict[Format, str] = {
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "text": "text/plain; version=0.0.4; charset=utf-8",
}
FamilyType = Literal["gauge", "counter", "histogram", "summary"]
Shown = float | Histogram | ExponentialHistogram | Summary
_SUFFIXES: dict[FamilyType, tuple[str, ...]] = {
    "gauge": ("",),
    "counter": ("_total",),
    "summary": ("", "_sum", "_count"),
    "histogram": ("", "_sum", "_count", "_bucket"),
}


class Family(NamedTuple):
    """All series of one name: labels and the latest value of each."""

    name: str
    type: FamilyType
    help: str
    series: Sequence[tuple[Mapping[str, str], Shown]]


def sample_names(name: str, type: FamilyType) -> tuple[str, ...]:
    """The names used by a family, its own and those of its samples: no other family may use them."""
    bare = name.removesuffix("_total") if type == "counter" else name
    return tuple(bare + suffix for suffix in _SUFFIXES[type])


def expose(families: Iterable[Family], form: Format) -> bytes:
    """Write families; a counter's name ends in `_total`."""
    lines: list[str] = []
    for family in families:
        named = family.name
        if family.type == "counter":
            named = named.removesuffix("_total")
            if form == "text":
                named += "_total"
        if family.help:
            lines.append(f"# HELP {named} {write_help(family.help, quotes=form == 'openmetrics')}")
        lines.append(f"# TYPE {named} {family.type}")
        for labels, value in family.series:
            lines += _samples(family, labels, value)
    if form == "openmetrics":
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode() if lines else b""


def choose(accept: str) -> Format:
    """Choose the format by the Accept header of a scraper; the older text format by default."""
    best: Format = "text"
    most = 0.0
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        given = dict(piece.partition("=")[::2] for piece in parameters)
        if media == "application/openmetrics-text" and given.get("version", "1.0.0") in ("1.0.0", "0.0.1"):
            form: Format = "openmetrics"
        elif media in ("text/plain", "text/*", "*/*"):
            form = "text"
        else:
            continue
        weight = _weight(given.get("q", "1"))
        if weight > most:
            best, most = form, weight
    return best


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _samples(family: Family, labels: Mapping[str, str], value: Shown) -> Iterator[str]:
    if isinstance(value, (int, float)):
        name = family.name
        if family.type == "counter":
            name = name.removesuffix("_total") + "_total"
        yield f"{name}{write_labels(labels)} {write_number(value)}"
        return
    if isinstance(value, Histogram):
        if family.type == "histogram":
            yield from _buckets(family.name, labels, value)
    elif isinstance(value, Summary):
        for quantile, number in value.quantiles:
            labels_text = write_labels({**labels, "quantile": write_number(float(quantile))})
            yield f"{family.name}{labels_text} {write_number(number)}"
    written = write_labels(labels)
    yield f"{family.name}_count{written} {value.count}"
    if value.total is not None:
        yield f"{family.name}_sum{written} {write_number(value.total)}"


def _buckets(name: str, labels: Mapping[str, str], value: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=False):
        below += count
        yield f"{name}_bucket{write_labels({**labels, 'le': write_number(float(bound))})} {below}"
    if not value.counts:
        yield f"{name}_bucket{write_labels({**labels, 'le': '+Inf'})} {value.count}"
