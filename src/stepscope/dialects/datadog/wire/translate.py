"""Converts records to Datadog items, and limits tags that would each create a series."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, structs

from stepscope.dialects.datadog.wire.items import (
    WRITER_TAGS,
    Item,
    Point,
    PointType,
    check_of,
    joined,
    log_of,
    metric_name,
    notice_of,
    tag,
    tags_of,
)
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Instrument, Metric, Record, Summary, Value
from stepscope.wire import foreign_names
from stepscope.wire.otlp.encode.encode_request import BASELINE
from stepscope.wire.otlp.encode.metric_points import Temporality

NOT_FINITE = "NaN or infinite: Datadog has no place for it"
STEP_KEY = "train.step"
DEFAULT_PROJECT = "default"
"""The default project, which gets no tag."""
NON_FINITE_KEY = "non_finite"
"""Counts, by metric, the non-finite values that Datadog rejects, so that they are visible there."""

_SAMPLES: dict[str, PointType] = {"histogram": "h", "distribution": "d", "timing": "ms", "set": "s"}


_Axis = tuple[str, tuple[str, ...]]
"""A writer, and the tags its steps are sent with."""


class Spelling(Struct, frozen=True, kw_only=True):
    """How names and tags are spelled."""

    namespace: str = ""
    tags: tuple[str, ...] = ()
    run_tag: bool = False
    rank_tag: bool = True
    service: str = ""


class Translated(NamedTuple):
    """Items in the order of their records, and counts of values that cannot be converted, by reason."""

    items: list[Item]
    refused: Counter[str]


class Translator:
    """Converts batches to items. State about steps and sums is kept only after `commit`."""

    def __init__(self, spelling: Spelling, *, logs: bool = True) -> None:
        self._spelling, self._logs = spelling, logs
        self._temporality = Temporality("delta")
        self._steps: dict[_Axis, int] = {}
        self._fresh: dict[_Axis, int] = {}

    def translate(self, batches: Sequence[Batch]) -> Translated:
        """Convert batches; spans, and without `logs` log lines, are skipped."""
        self._temporality.rewind()
        self._fresh = {}
        done = Translated([], Counter())
        where = 0
        for batch in batches:
            writer = structs.replace(batch.writer, host=batch.writer.named_host)
            tags = self._writer_tags(writer)
            for record in batch.records:
                self._record(writer, tags, where, record, done)
                where += 1
        return done

    def commit(self) -> None:
        """Keep the state: the destination has accepted the items."""
        self._temporality.commit()
        self._steps.update(self._fresh)
        self._fresh = {}
        while len(self._steps) > 100_000:
            del self._steps[next(iter(self._steps))]

    def _writer_tags(self, writer: Writer) -> tuple[str, ...]:
        record_tags = [tag("project", writer.project)] if writer.project != DEFAULT_PROJECT else []
        if self._spelling.rank_tag and writer.world_size > 1:
            record_tags.append(tag("rank", writer.rank))
        if self._spelling.run_tag:
            record_tags.append(tag("run_id", writer.run))
        return tuple(dict.fromkeys((*self._spelling.tags, *record_tags)))

    def _record(self, writer: Writer, tags: tuple[str, ...], where: int, record: Record, done: Translated) -> None:
        if isinstance(record, Metric):
            self._metric(writer, tags, where, record, done)
            return
        if isinstance(record, Event) and foreign_names.ATTR_CHECK_STATUS in record.attrs:
            done.items.append(check_of(writer, where, record, tags))
            return
        notice = notice_of(writer, where, record, tags)
        if notice is not None:
            done.items.append(notice)
        elif self._logs:
            line = log_of(writer, where, record, tags, self._spelling.service)
            if line is not None:
                done.items.append(line)

    def _metric(self, writer: Writer, tags: tuple[str, ...], where: int, record: Metric, done: Translated) -> None:
        record_tags = tuple(tags_of(record.attrs))
        if record.step is not None:
            named = joined(tags, (each for each in record_tags if each.partition(":")[0] in WRITER_TAGS))
            self._step(writer, named, where, record, record.step, done)
        if record.instrument is not None and _adds_up(record, record.instrument):
            converted = self._temporality.convert(writer, record)
            if converted is None:
                done.refused[BASELINE] += 1
                return
            record = converted
        tags = joined(tags, record_tags)
        rate = _rate(record.attrs.get(names.ATTR_SAMPLE_RATE))
        given = record.attrs.get(foreign_names.ATTR_NAMESPACE)
        namespace = given if isinstance(given, str) else self._spelling.namespace
        for key, value in record.points():
            for suffix, kind, number, more in _parts(record, value):
                name = metric_name(key + suffix, namespace)
                if isinstance(number, float) and not math.isfinite(number):
                    done.refused[NOT_FINITE] += 1
                    counted = metric_name(NON_FINITE_KEY, self._spelling.namespace)
                    blamed = (*tags, tag("metric", name))
                    done.items.append(Point(where, "c", counted, 1, blamed, record.time, writer.host))
                else:
                    all_tags = (*tags, *more)
                    point = Point(where, kind, name, number, all_tags, record.time, writer.host, rate)
                    done.items.append(point)

    def _step(
        self, writer: Writer, tags: tuple[str, ...], where: int, record: Metric, step: int, done: Translated
    ) -> None:
        """Send the step as a gauge whenever it changed, because Datadog cannot show it otherwise."""
        if record.axis:
            tags = (*tags, tag("axis", record.axis))
        key = writer.id, tags
        if self._fresh.get(key, self._steps.get(key)) == step:
            return
        self._fresh[key] = step
        name = metric_name(STEP_KEY, self._spelling.namespace)
        done.items.append(Point(where, "g", name, step, tags, record.time, writer.host))


def _adds_up(record: Metric, instrument: Instrument) -> bool:
    """Return whether a record is a sum or holds histograms; samples are sent as they are."""
    if instrument.type == "sum":
        return True
    return not all(isinstance(value, (int, float)) for value in record.values.values())


def _parts(record: Metric, value: Value) -> Iterator[tuple[str, PointType, float | str, tuple[str, ...]]]:
    """Yield the points of a value: name suffix, type, number, additional tags."""
    if isinstance(value, (int, float)):
        kind = _kind(record.instrument)
        if kind == "s":
            yield "", kind, str(record.attrs.get(names.ATTR_SET_MEMBER, value)), ()
        else:
            yield "", kind, int(value) if isinstance(value, bool) else value, ()
        return
    yield ".count", "c", value.count, ()
    if value.total is not None:
        yield ".sum", "c", value.total, ()
    if isinstance(value, Summary):
        for quantile, number in value.quantiles:
            yield ".quantile", "g", number, (tag("quantile", quantile),)
        return
    if value.low is not None:
        yield ".min", "g", value.low, ()
    if value.high is not None:
        yield ".max", "g", value.high, ()


def _kind(instrument: Instrument | None) -> PointType:
    if instrument is None:
        return "g"
    if instrument.type == "sum":
        return "g" if instrument.cumulative else "c"
    return _SAMPLES.get(instrument.type, "g")


def _rate(given: Any) -> float:
    usable = isinstance(given, (int, float)) and math.isfinite(given) and 0 < given < 1
    return float(given) if usable else 1.0
