"""Items of an HTTP request as records, grouped by process, with the step taken from step gauges."""

import bisect
import threading
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from stepscope.dialects.datadog.listener.processes import NO_STEP_YET, SAMPLES
from stepscope.dialects.datadog.wire.items import Check, Item, LogLine, Notice, Point
from stepscope.dialects.datadog.wire.records import Step, check_record, event_record, log_record
from stepscope.dialects.datadog.wire.tags import Place, key_of, place_of, step_axis, step_strength
from stepscope.model.records import Instrument, Metric, Record
from stepscope.wire.otlp.decode.origin import Group, Origin, Origins

MAX_RANKS, MAX_STEPS = 2_000, 256
"""The limits of ranks with step histories, and of steps per rank; the oldest are dropped."""
MAX_AT_ONCE = 2_048
"""The limit of steps per rank while a request is processed."""
_COUNT = Instrument("sum", cumulative=False)
_LoggedStep = tuple[int, int, str | None]
"""A time, the step at it, and the step's axis."""


class StepHistory:
    """The steps of one rank by time, from step gauges."""

    def __init__(self) -> None:
        self._strength = NO_STEP_YET
        self._steps: list[_LoggedStep] = []
        self._known: set[_LoggedStep] = set()

    def add(self, strength: int, at: int, step: int, axis: str | None) -> None:
        """Add a step, unless a stronger metric is known; a stronger one replaces the history."""
        if strength < self._strength:
            self._strength, self._steps, self._known = strength, [], set()
        if strength == self._strength and (at, step, axis) not in self._known:
            bisect.insort(self._steps, (at, step, axis), key=_time)
            self._known.add((at, step, axis))
            if len(self._steps) > 2 * MAX_AT_ONCE:
                self.trim(MAX_AT_ONCE)

    def trim(self, most: int = MAX_STEPS) -> None:
        """Drop the oldest steps."""
        if len(self._steps) > most:
            del self._steps[:-most]
            self._known = set(self._steps)

    def find(self, at: int, index: int, count: int) -> Step:
        """Return the step of point `index` of `count` points of a series with the same time.

        Times are whole seconds. As many steps as points in a second are paired in order; else the last step is used.
        """
        low = bisect.bisect_left(self._steps, at, key=_time)
        high = bisect.bisect_right(self._steps, at, key=_time)
        if high == 0:
            return None, None
        return self._steps[low + index if high - low == count else high - 1][1:]


def _time(logged_step: _LoggedStep) -> int:
    return logged_step[0]


class Steps:
    """The step histories of all ranks, since values and steps come in different requests."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a request is processed."""
        self._known: dict[tuple[str, int], StepHistory] = {}

    def find(self, origin: Origin) -> StepHistory | None:
        """Return the history of an origin's rank, if any."""
        return self._known.get((origin.run, origin.rank))

    def make(self, origin: Origin) -> StepHistory:
        """Return the history of an origin's rank, creating it if needed."""
        rank = origin.run, origin.rank
        if rank not in self._known:
            while len(self._known) >= MAX_RANKS:
                del self._known[next(iter(self._known))]
            self._known[rank] = StepHistory()
        return self._known[rank]


class RequestRecords:
    """Converts the items of one request to records."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._origins = Origins()
        self._places: dict[Hashable, Place] = {}
        self._distinct: dict[tuple[str, ...], int] = {}
        self._numbers: dict[int, tuple[int, tuple[str, ...]]] = {}
        """Numbers of tags by identity, with the tags, so that no other tuple gets the same identity."""

    def sort(self, items: Sequence[Item]) -> list[Group]:
        """Return the records of items, by process."""
        points = [item for item in items if isinstance(item, Point)]
        with self._steps.lock:
            touched = {id(found): found for point in points if (found := self._note_step(point)) is not None}
            self._add_points(points)
            for item in items:
                if not isinstance(item, Point):
                    self._add_line(item)
            for history in touched.values():
                history.trim()
        return self._origins.groups()

    def _place(self, tags: tuple[str, ...], host: str) -> Place:
        number = self._number(tags)
        place = self._places.get((number, host))
        if place is None:
            place = self._places[number, host] = place_of(tags, host)
        return place

    def _number(self, tags: tuple[str, ...]) -> int:
        """A number for equal tags: all points of a series share the tuple, which takes long to hash."""
        known = self._numbers.get(id(tags))
        if known is None:
            known = self._numbers[id(tags)] = self._distinct.setdefault(tags, len(self._distinct)), tags
        return known[0]

    def _note_step(self, point: Point) -> StepHistory | None:
        """Add the step of a step gauge; None for any other metric."""
        strength = step_strength(point.name) if point.type == "g" else None
        if strength is None or not isinstance(point.value, (int, float)) or point.value != point.value // 1:
            return None
        place = self._place(point.tags, point.host)
        history = self._steps.make(place.origin)
        history.add(strength, point.time, int(point.value), place.axis or step_axis(point.name))
        return history

    def _step_of(self, place: Place, at: int, index: int = 0, count: int = 1) -> Step:
        if place.step is not None:
            return place.step, place.axis
        history = self._steps.find(place.origin)
        return history.find(at, index, count) if history is not None else (None, None)

    def _add_points(self, points: Sequence[Point]) -> None:
        """Combine points with the same time and step into one record, as long as their keys differ."""
        totals = Counter((point.name, self._number(point.tags), point.host, point.time) for point in points)
        seen: Counter[Hashable] = Counter()
        open_records: dict[Hashable, dict[str, Any]] = {}
        for point in points:
            tags = self._number(point.tags)
            same = (point.name, tags, point.host, point.time)
            place = self._place(point.tags, point.host)
            step, axis = self._step_of(place, point.time, seen[same], totals[same])
            seen[same] += 1
            moment = (point.type, tags, point.host, point.time, step, axis)
            key = key_of(point.name)
            values = open_records.get(moment)
            if values is None or key in values:
                values = open_records[moment] = {}
                made = _COUNT if point.type == "c" else SAMPLES.get(point.type)
                record = Metric(point.time, step, axis, None, values, dict(place.attrs), made)
                self._origins.records_of(place.origin).append(record)
            values[key] = point.value

    def _add_line(self, item: Notice | Check | LogLine) -> None:
        tags = item.tags
        if isinstance(item, LogLine) and item.service:
            tags = (*tags, f"service:{item.service}")
        place = self._place(tags, item.host)
        step = self._step_of(place, item.time)
        record: Record
        if isinstance(item, Notice):
            record = event_record(item, place.attrs, step)
        elif isinstance(item, Check):
            record = check_record(item, place.attrs, step)
        else:
            record = log_record(item, place.attrs, step)
        self._origins.records_of(place.origin).append(record)
