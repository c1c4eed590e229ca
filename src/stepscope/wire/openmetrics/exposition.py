"""Families of series as text: OpenMetrics 1.0 or Prometheus 0.0.4, as the scraper's Accept header prefers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.wire.openmetrics.spelling import write_help, write_labels, write_number

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
    """The names that a family takes, its own and those of its samples: no other family may have one of them."""
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
    """Choose by an Accept header what the scraper likes best; the older text when it does not say."""
    best: Format = "text"
    most = 0.0
    for part in accept.split(","):
        media, *said = (piece.strip().lower() for piece in part.split(";"))
        given = dict(piece.partition("=")[::2] for piece in said)
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
            told = write_labels({**labels, "quantile": write_number(float(quantile))})
            yield f"{family.name}{told} {write_number(number)}"
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
