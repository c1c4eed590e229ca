"""Limits on incoming records: mask secrets, truncate long texts and names, reject unbounded keys."""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from stepscope.hub.limits import Limits
from stepscope.hub.store.write.metric_rows import as_rows
from stepscope.model.attribute_limit import left_out
from stepscope.model.names import ATTR_EXEMPLARS, SCOPE_SAMPLES
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Attrs, Event, Instrument, Log, Metric, Record, Span, SpanEvent
from stepscope.model.redaction import (
    SHORTEST,
    hides,
    is_secret,
    mask_bytes,
    mask_data,
    mask_list,
    mask_text,
    masked,
    safe_key,
)

CUT = "attribute cut"
NAME_CUT = "name or message cut"
TOO_MANY = "attribute beyond the limit"
TOO_DEEP = "attribute nested too deep"
TOO_MANY_SERIES = "too many series: metric keys and their attributes"
_PLAIN = (int, float, bool, type(None))
_NAMES: dict[type, tuple[str, ...]] = {
    Metric: ("axis", "category"),
    Instrument: ("type", "unit", "description", "scope"),
    Span: ("name", "message", "scope", "axis"),
    SpanEvent: ("name",),
    Log: ("scope", "axis"),
    Event: ("name", "axis"),
    Alert: ("name", "message", "axis"),
}
"""The text fields of records besides attributes and bodies."""
_STEPPED: set[type] = {Metric, Span}
Named = TypeVar("Named", bound=Struct)
_MAX_NAMES = 10_000
_MAX_KEYS = 50_000
_MAX_TEXTS = 20_000
"""When more texts than this are cached, the cache is cleared: most come once, and leave no room for those that repeat.
"""
_LONGEST_PLAIN = 64
MAX_RUNS = 5_000
"""Runs whose series are remembered; the oldest are forgotten."""
MAX_IN_ALL = 1_000_000
IDLE_SECONDS = 600.0
"""When there are too many in all, runs without records for this long are forgotten."""


class RunSeries:
    """The metric keys of a run, and hashes of its series: keys with attributes, instrument or axis."""

    __slots__ = ("keys", "series", "used")

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.series: set[int] = set()
        self.used = 0.0

    def __len__(self) -> int:
        return len(self.keys) + len(self.series)

    def has_all(self, metrics: Iterable[Metric]) -> bool:
        """Return whether the series of metrics with known keys are known."""
        others = [metric for metric in metrics if metric.attrs or metric.instrument or metric.axis or metric.category]
        return not others or self.series.issuperset([each for metric in others for each in _series_of(metric)])


class SeriesLimits:
    """Counts the series of each run. Safe to use from any thread."""

    def __init__(self, limits: Limits, most_in_all: int = MAX_IN_ALL, clock: Callable[[], float] = time.monotonic):
        self._limits = limits
        self._most_in_all = most_in_all
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, RunSeries] = {}
        self._count = 0

    def of(self, run: str) -> RunSeries:
        """Return the series of a run that sends records now."""
        found = self._runs.get(run)
        if found is None:
            with self._lock:
                while len(self._runs) >= MAX_RUNS:
                    self._forget(next(iter(self._runs)))
                found = self._runs.setdefault(run, RunSeries())
        found.used = self._clock()
        return found

    def admits(self, run: RunSeries, metric: Metric) -> bool:
        """Count the series of a metric; False when its run or all runs have too many."""
        keys = metric.values.keys() - run.keys
        series = set(_series_of(metric)) - run.series
        if not keys and not series:
            return True
        with self._lock:
            if len(run.keys) + len(keys) > self._limits.keys or len(run.series) + len(series) > self._limits.series:
                return False
            fresh = len(keys) + len(series)
            if self._count + fresh > self._most_in_all and not self._make_room(fresh):
                return False
            run.keys |= keys
            run.series |= series
            self._count += fresh
        return True

    def _make_room(self, wanted: int) -> bool:
        since = self._clock() - IDLE_SECONDS
        for name in [name for name, run in self._runs.items() if run.used < since]:
            self._forget(name)
        return self._count + wanted <= self._most_in_all

    def _forget(self, name: str) -> None:
        self._count -= len(self._runs.pop(name))


def _series_of(metric: Metric) -> list[int]:
    """Return hashes of what identifies the series of a metric besides its keys; none when that is nothing.

    Attributes in another order count as another series: a client sends them in one order, and sorting costs more.
    """
    attrs, made = metric.attrs, metric.instrument
    if not (attrs or made or metric.axis or metric.category):
        return []
    if ATTR_EXEMPLARS in attrs:
        attrs = {name: value for name, value in attrs.items() if name != ATTR_EXEMPLARS}
    kind = (made.type, made.unit, made.cumulative, made.monotonic, made.scope) if made is not None else ()
    try:
        shared = hash((*attrs.items(), kind, metric.axis, metric.category))
    except TypeError:  # lists and dicts
        shared = hash((str(attrs), kind, metric.axis, metric.category))
    return [hash((shared, key)) for key in metric.values]


class Scrubber:
    """Applies the limits of a hub, from any thread; the attributes of records are changed in place."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._series = SeriesLimits(limits)
        self._harmless: set[str] = set()
        """Names of attributes that are known not to be secrets and not too long."""
        self._short: set[str] = set()
        """Metric keys that are not too long and hold no secret."""
        self._plain_texts: set[str] = set()
        """Short texts that hold no secret."""

    def mask_batch(self, batch: Batch) -> Batch:
        """Mask and cut the records of a trainer's journal, and what it says about its run."""
        return batch._replace(writer=self.safe_writer(batch.writer, Counter()), records=self.mask(batch.records))

    def mask(self, records: list[Record]) -> list[Record]:
        """Mask and truncate without a limit on keys, for records of our own SDK."""
        if (rows := as_rows(records)) is not None:
            if self._are_short({*rows.keys, rows.category, rows.axis}):
                return records
            records = [*rows]
        kinds = set(map(type, records))
        if kinds <= _STEPPED:  # most batches by far
            metrics = [record for record in records if type(record) is Metric] if Span in kinds else records
            spans = [record for record in records if type(record) is Span] if Span in kinds else []
            if self._are_plain(cast(list[Metric], metrics)) and self._are_bare(spans):
                return records
        return self.scrub(None, records, Counter())

    def _are_plain(self, metrics: list[Metric]) -> bool:
        """Return whether metrics have no attributes and nothing too long; a fast check."""
        if [True for metric in metrics if metric.attrs or metric.instrument is not None]:
            return False
        names: set[str | None] = set().union(*[metric.values for metric in metrics])
        names |= {metric.category for metric in metrics}
        names |= {metric.axis for metric in metrics}
        return self._are_short(names)

    def _are_short(self, names: set[str | None]) -> bool:
        """Return whether names of metrics are not too long and hold no secret."""
        fresh = [name for name in names - self._short if name]
        if any(len(name) > self._limits.name or self._safe(name) is not name for name in fresh):
            return False
        self._note_short(fresh)
        return True

    def _are_bare(self, spans: list[Span]) -> bool:
        """Return whether spans have harmless names and no other texts; a fast check."""
        if [True for span in spans if span.attrs or span.events or span.message or span.scope or span.axis]:
            return False
        if [True for span in spans for link in span.links if link.attrs]:
            return False
        names = {span.name for span in spans} - self._plain_texts
        return all(len(name) <= self._limits.text and self._safe(name) is name for name in names)

    def _note_short(self, names: Iterable[str]) -> None:
        if len(self._short) < _MAX_KEYS:
            self._short.update(names)

    def safe_writer(self, writer: Writer, lost: "Counter[str]") -> Writer:
        """Mask the project and the name of a run, and what its process says about itself."""
        self.scrub_attrs(writer.resource, lost)
        project, name = self._safe(writer.project), writer.name and self._safe(writer.name)
        if project is writer.project and name is writer.name:
            return writer
        return structs.replace(writer, project=project, name=name)

    def scrub(self, run: str | None, records: list[Record], lost: "Counter[str]") -> list[Record]:
        """Return the records to keep; what was truncated or rejected is counted by reason in `lost`."""
        known = self._series.of(run) if run is not None else None
        if self._are_known(records, known):
            return records
        kept: list[Record] = []
        for record in records:
            plain = type(record) is Metric and self._is_known(record, known)
            if plain and (not record.attrs or self._is_harmless(record.attrs)):
                kept.append(record)  # most records by far
                continue
            if type(record) is Log and record.scope == SCOPE_SAMPLES:
                kept.append(self._scrub_sample(record, lost))
                continue
            if record.attrs:
                self.scrub_attrs(record.attrs, lost)
            if isinstance(record, Metric):
                record = self._with_short_keys(record, lost)
                if known is not None and not self._series.admits(known, record):
                    lost[TOO_MANY_SERIES] += 1
                    continue
            elif isinstance(record, Span):
                if record.axis or record.message or record.scope or record.name not in self._plain_texts:
                    record = self._with_safe_names(record, lost)
                if record.events or record.links:
                    record = self._scrub_span(record, lost)
            elif isinstance(record, Alert):
                record = self._with_safe_names(record, lost)
            else:
                record = self._scrub_line(record, lost)
            kept.append(record)
        return kept

    def _are_known(self, records: list[Record], known: RunSeries | None) -> bool:
        """Return whether records are metrics of known series, harmless attributes and short metadata; a fast check.

        Attributes and instruments that records share are looked at once.
        """
        if not {Metric}.issuperset(map(type, records)):
            return False
        metrics = cast(list[Metric], records)
        keys = self._short if known is None else known.keys
        if not keys.issuperset(chain.from_iterable([metric.values for metric in metrics])):
            return False
        if known is not None and not known.has_all(metrics):
            return False
        made = {id(metric.instrument): metric.instrument for metric in metrics}
        size = max([_metadata_size(each) for each in made.values()], default=0)
        for names in ({metric.axis for metric in metrics}, {metric.category for metric in metrics}):
            size += max([len(name or "") for name in names], default=0)
        if size > min(self._limits.name, self._limits.text):
            return False
        attrs = {id(metric.attrs): metric.attrs for metric in metrics if metric.attrs}
        return all(self._is_harmless(each) for each in attrs.values())

    def _is_known(self, metric: Metric, known: RunSeries | None) -> bool:
        """Return whether a metric has only known series and short metadata; a fast check."""
        if not (self._short if known is None else known.keys).issuperset(metric.values):
            return False
        if known is not None and not known.has_all((metric,)):
            return False
        size = len(metric.axis or "") + len(metric.category or "") + _metadata_size(metric.instrument)
        return size <= min(self._limits.name, self._limits.text)

    def scrub_attrs(self, attrs: Attrs, lost: "Counter[str]") -> None:
        """Mask, truncate and limit attributes in place."""
        limits = self._limits
        if self._is_harmless(attrs):
            return
        for key in left_out(list(attrs), limits.attributes) if len(attrs) > limits.attributes else ():
            del attrs[key]
            lost[TOO_MANY] += 1
        for key in [key for key in attrs if len(key) > limits.text or self._safe(key) is not key]:
            value = attrs.pop(key)
            short = key if len(key) <= limits.text else self._cut(key, lost)
            attrs[self._safe(short)] = masked(value) if is_secret(key) else value
        for key, value in attrs.items():
            if is_secret(key):
                attrs[key] = masked(value)
            elif type(value) is str:
                if len(value) > limits.text:
                    value = value[: limits.text]
                    lost[CUT] += 1
                attrs[key] = self._safe(value)
            elif type(value) not in _PLAIN:
                attrs[key] = _bounded(value, limits, lost, limits.depth)

    def _is_harmless(self, attrs: Attrs) -> bool:
        """Return whether attributes are few and short under known names; a fast check."""
        if len(attrs) > self._limits.attributes or not self._harmless.issuperset(attrs):
            if len(self._harmless) < _MAX_NAMES:
                longest = self._limits.text
                self._harmless.update(
                    [key for key in attrs if len(key) <= longest and not is_secret(key) and self._safe(key) is key]
                )
            return False
        known = self._plain_texts
        for value in attrs.values():
            if (value not in known and len(value) >= SHORTEST) if type(value) is str else (type(value) not in _PLAIN):
                return False
        return True

    def _safe(self, text: str) -> str:
        """Mask the secrets in a text; short ones without any are cached."""
        if len(text) < SHORTEST or text in self._plain_texts:
            return text
        safe = mask_text(text)
        if safe is text and len(text) <= _LONGEST_PLAIN:
            if len(self._plain_texts) >= _MAX_TEXTS:
                self._plain_texts = set()  # another thread may be reading this one
            self._plain_texts.add(text)
        return safe

    def _scrub_sample(self, sample: Log, lost: "Counter[str]") -> Record:
        """Truncate and limit the columns of a sample, and mask what is a secret by its name or shape."""
        cells, limits = sample.attrs, self._limits
        for key in left_out(list(cells), limits.attributes):
            del cells[key]
            lost[TOO_MANY] += 1
        kept = _bounded(cells, limits, lost, limits.depth, mask_data)
        return self._scrub_line(structs.replace(sample, attrs=kept), lost)

    def _scrub_span(self, span: Span, lost: "Counter[str]") -> Span:
        for event in span.events:
            if event.attrs:
                self.scrub_attrs(event.attrs, lost)
        for link in span.links:
            if link.attrs:
                self.scrub_attrs(link.attrs, lost)
        if self._plain_texts.issuperset([event.name for event in span.events]):
            return span
        return structs.replace(span, events=tuple(self._with_safe_names(event, lost) for event in span.events))

    def _with_safe_names(self, record: Named, lost: "Counter[str]") -> Named:
        """Truncate name, message, scope and axis of a record, and mask secrets in them."""
        most = self._limits.text
        changed = {}
        for field in _NAMES[type(record)]:
            text = getattr(record, field)
            if text:
                if type(record) is Metric:
                    safe = self._short_name(self._safe(text), lost)
                else:
                    safe = self._safe(text if len(text) <= most else self._cut(text, lost))
                if safe is not text:
                    changed[field] = safe
        return structs.replace(record, **changed) if changed else record

    def _with_short_keys(self, metric: Metric, lost: "Counter[str]") -> Metric:
        """Truncate the keys of a metric, its axis and category, and the texts of its instrument."""
        most = self._limits.name
        if [True for key in metric.values if len(key) > most or self._safe(key) is not key]:
            short = {self._short_name(self._safe(key), lost): value for key, value in metric.values.items()}
            metric = structs.replace(metric, values=short)
        self._note_short(metric.values)
        if metric.instrument is not None:
            made = self._with_safe_names(metric.instrument, lost)
            metric = metric if made is metric.instrument else structs.replace(metric, instrument=made)
        return self._with_safe_names(metric, lost)

    def _short_name(self, name: str, lost: "Counter[str]") -> str:
        """Truncate the name of a metric, its secrets masked, so that two that begin alike stay two."""
        most = self._limits.name
        if len(name) <= most:
            return name
        lost[NAME_CUT] += 1
        whole = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return f"{name[: max(most - len(whole) - 1, 0)]}~{whole}"

    def _cut(self, text: str, lost: "Counter[str]") -> str:
        lost[NAME_CUT] += 1
        return text[: self._limits.text]

    def _scrub_line(self, record: Log | Event, lost: "Counter[str]") -> Record:
        """Truncate the names and the body of a log or event."""
        record = self._with_safe_names(record, lost)
        return record if record.body is None else self._with_body(record, lost)

    def _with_body(self, record: Log | Event, lost: "Counter[str]") -> Record:
        body = record.body
        if isinstance(body, str):
            cut = body if len(body) <= self._limits.long_text else body[: self._limits.long_text]
            lost[CUT] += len(cut) < len(body)
            safe = self._safe(cut)
            return record if safe is body else structs.replace(record, body=safe)
        if type(body) in _PLAIN:
            return record
        return structs.replace(record, body=_bounded(body, self._limits, lost, self._limits.depth))


def _metadata_size(made: Instrument | None) -> int:
    return 0 if made is None else len(made.type) + len(made.unit) + len(made.description) + len(made.scope)


def _bounded(
    value: Any, limits: Limits, lost: "Counter[str]", depth: int, mask: Callable[[str], str] = mask_text
) -> Any:
    """Mask the secrets of a nested value, truncate long texts, and drop what is nested too deeply."""
    if isinstance(value, (dict, list, tuple)):
        if depth == 0:
            lost[TOO_DEEP] += 1
            return None
        if isinstance(value, dict):
            return dict(_bounded_pair(key, inner, limits, lost, depth, mask) for key, inner in value.items())
        return [_bounded(inner, limits, lost, depth - 1, mask) for inner in mask_list(value)]
    if isinstance(value, (str, bytes)):
        if len(value) > limits.text:
            lost[CUT] += 1
            value = value[: limits.text]
        return mask(value) if isinstance(value, str) else mask_bytes(value)
    return value


def _bounded_pair(
    key: Any, value: Any, limits: Limits, lost: "Counter[str]", depth: int, mask: Callable[[str], str]
) -> tuple[Any, Any]:
    kept = masked(value) if hides(key) else _bounded(value, limits, lost, depth - 1, mask)
    if not isinstance(key, (str, bytes)) or len(key) <= limits.text:
        return safe_key(key), kept
    lost[NAME_CUT] += 1
    return safe_key(key[: limits.text]), kept
