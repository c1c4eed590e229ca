"""Stretches: consecutive steps of one rank that recorded the same, as columns."""

from collections.abc import Sequence
from itertools import repeat
from math import isfinite
from operator import add, attrgetter, eq
from typing import NamedTuple, cast

from stepscope.diagnosis.detector import Steps, leading
from stepscope.diagnosis.span_names import traits
from stepscope.model.names import ATTR_SAMPLED
from stepscope.model.records import Metric, Record, Span

MIN_STEPS, MAX_STEPS = 8, 256
MAX_RECORDS = 64
"""The most records of one step."""
_place = attrgetter("step", "name", "status")


class Metrics(NamedTuple):
    """The metric that each step logged in one call."""

    category: str | None
    times: list[int]
    values: dict[str, list[float]]


class Spans(NamedTuple):
    """The spans of each step, all of which ended, the step's own last; empty where there are none."""

    columns: tuple[list[Span], ...]
    ended: list[int]
    """When the last span of each step ended."""
    times: Steps


class Stretch(NamedTuple):
    """Consecutive steps with the same metrics and spans; all values are finite."""

    records: Sequence[Record]
    size: int
    """The records of a step."""
    steps: list[int]
    metrics: tuple[Metrics, ...]
    spans: Spans | None

    def part(self, since: int, count: int) -> "Stretch":
        """Return some of the steps."""
        cut = slice(since, since + count)
        spans = self.spans and Spans(
            tuple(each[cut] for each in self.spans.columns), self.spans.ended[cut], self.spans.times.part(cut)
        )
        metrics = tuple(
            Metrics(each.category, each.times[cut], {key: column[cut] for key, column in each.values.items()})
            for each in self.metrics
        )
        records = self.records[since * self.size : (since + count) * self.size]
        return Stretch(records, self.size, self.steps[cut], metrics, spans)


def stretch_at(rank: int, records: Sequence[Record], at: int) -> Stretch | None:
    """Return the stretch that begins at an index, where a new step does; None where the next steps differ."""
    first = records[at].step
    end = at
    while end < len(records) and end - at <= MAX_RECORDS and records[end].step == first:
        end += 1
    size = end - at
    count = min((len(records) - at) // size, MAX_STEPS)
    if first is None or count < MIN_STEPS or size > MAX_RECORDS:
        return None
    columns = [records[at + place : at + size * count : size] for place in range(size)]
    expected = list(range(first, first + count))
    count = min(_alike(column, expected) for column in columns)
    if count < MIN_STEPS:
        return None
    columns, expected = [column[:count] for column in columns], expected[:count]
    metrics = _metrics([cast(Sequence[Metric], each) for each in columns if type(each[0]) is Metric])
    spans = [cast(list[Span], each) for each in columns if type(each[0]) is Span]
    timed = _spans(rank, spans, expected) if spans else None
    if metrics is None or (spans and timed is None):
        return None
    return Stretch(records[at : at + size * count], size, expected, metrics, timed)


def _alike(column: Sequence[Record], steps: Sequence[int]) -> int:
    """Count the records, from the first on, that are like it at consecutive steps."""
    like = column[0]
    kind = type(like)
    if list(map(type, column)) != [kind] * len(column):
        column = column[: leading(type(each) is kind for each in column)]
    if type(like) is Metric:
        keys = [like.category, *like.values]
        found = [[each.category, *each.values] == keys for each in cast(Sequence[Metric], column)]
        count = len(found) if all(found) else found.index(False)
        return leading(each.step == step for each, step in zip(column[:count], steps, strict=False))
    if type(like) is not Span or like.duration is None or like.status:
        return 0
    places = list(map(_place, column))
    if places != (expected := list(zip(steps[: len(column)], repeat(like.name), repeat(0)))):
        places = places[: leading(map(eq, places, expected))]
    spans, is_root = cast(Sequence[Span], column[: len(places)]), like.parent_id is None
    return leading(
        each.duration is not None and (each.parent_id is None) is is_root and ATTR_SAMPLED not in each.attrs
        for each in spans
    )


def _metrics(columns: Sequence[Sequence[Metric]]) -> tuple[Metrics, ...] | None:
    """Return metrics as columns; None for values that are not finite numbers, or a key that is logged twice."""
    found = []
    names: set[str] = set()
    count = 0
    for column in columns:
        held = [metric.values for metric in column]
        values = {key: cast(list[float], [each[key] for each in held]) for key in held[0]}
        try:
            if not all(isfinite(sum(each)) for each in values.values()):
                return None
        except (TypeError, OverflowError):
            return None
        names.update(name for name, _ in column[0].points())
        count += len(values)
        found.append(Metrics(column[0].category, [metric.time for metric in column], values))
    return tuple(found) if len(names) == count else None


def _spans(rank: int, columns: Sequence[list[Span]], steps: list[int]) -> Spans | None:
    """Return the times of spans; None unless all are inside the last one, which is the step, and end before it."""
    names = [column[0].name for column in columns]
    if not traits(names[-1]).step or any(traits(name).rare or traits(name).saving for name in names):
        return None
    ids = [[span.span_id for span in column] for column in columns]
    alone = [cast(list[int], [span.duration for span in column]) for column in columns]
    lasted = alone[:]
    for place, column in enumerate(columns[:-1]):
        parents = [span.parent_id for span in column]
        above = next((at for at in range(place + 1, len(columns)) if ids[at] == parents), None)
        if above is None:
            return None
        alone[above] = [a - b for a, b in zip(alone[above], lasted[place], strict=True)]
    if columns[-1][0].parent_id is not None:
        return None
    own: dict[str, list[int]] = {}
    for name, each in zip(names, alone, strict=True):
        positive = [took if took > 0 else 0 for took in each]
        before = own.get(name)
        own[name] = positive if before is None else [a + b for a, b in zip(before, positive, strict=True)]
    took = [duration / 1e9 for duration in lasted[-1]]
    times = [[span.time for span in column] for column in columns]
    last = map(max, *[map(add, *each) for each in zip(times, lasted, strict=True)], repeat(0))
    began = times[-1]
    ended = [time + int(seconds * 1e9) for time, seconds in zip(began, took, strict=True)]
    seconds_of = {name: [each / 1e9 for each in column] for name, column in own.items()}
    return Spans(tuple(columns), list(last), Steps(rank, steps, began, ended, took, seconds_of))
