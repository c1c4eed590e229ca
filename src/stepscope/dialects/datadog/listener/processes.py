"""The processes that send samples: run, step, series and pending records of each."""

import time
from collections.abc import Callable, Iterator

from stepscope.dialects.datadog.wire.items import PointType
from stepscope.model.names import ATTR_SAMPLE_RATE
from stepscope.model.records import Attrs, Instrument, Metric, Record
from stepscope.wire.otlp.decode.origin import Origin

TOO_MANY_RUNS = "too many runs and processes at once"
TOO_MANY_SERIES = "too many series: combinations of a metric and its tags"
MAX_PROCESSES = 1_000
MAX_SERIES = 20_000
"""The limit of series per process."""
MAX_SERIES_IN_ALL = 200_000
IDLE_SECONDS = 600.0
"""Seconds after which a silent process may be evicted."""
NO_STEP_YET = 99
SAMPLES: dict[PointType, Instrument] = {
    "h": Instrument("histogram", cumulative=False),
    "d": Instrument("distribution", cumulative=False),
    "ms": Instrument("timing", "ms", cumulative=False),
}


class Track:
    """The current step of one rank of a run, shared by all its processes."""

    __slots__ = ("axis", "members", "step", "strength")

    def __init__(self) -> None:
        self.step: int | None = None
        self.axis: str | None = None
        self.strength = NO_STEP_YET
        """The reliability of the metric that set the step, lower is better; a less reliable one does not change it."""
        self.members: list[Process] = []

    def advance(self, step: int, axis: str | None, strength: int, now: int) -> None:
        """Advance to a step, unless a stronger metric sets it; earlier values keep the earlier step."""
        if strength <= self.strength and (step, axis) != (self.step, self.axis):
            for process in self.members:
                process.close_values()
                process.end_interval(now)
            self.step, self.axis, self.strength = step, axis, strength


class Process:
    """One process of a run: its series and pending records."""

    __slots__ = ("counting", "origin", "records", "seen", "series", "track", "waiting")

    def __init__(self, origin: Origin, track: Track) -> None:
        self.origin, self.track = origin, track
        self.series: set[int] = set()
        """Hashes of the series that were admitted."""
        self.records: list[Record] = []
        self.waiting: list[Stream] = []
        """Streams with values that are not in a record yet."""
        self.counting: list[Stream] = []
        """Streams with sums or members of sets."""
        self.seen = 0.0

    def is_busy(self) -> bool:
        """Whether it has pending records."""
        return bool(self.records or self.waiting or self.counting)

    def close_values(self) -> None:
        """Convert pending values to records."""
        for stream in self.waiting:
            stream.close()
        self.waiting.clear()

    def end_interval(self, now: int) -> None:
        """Record the sums and the set sizes."""
        for stream in self.counting:
            stream.end_interval(now)
        self.counting.clear()


class Stream:
    """The metrics of one process with the same type, rate and tags."""

    __slots__ = ("attrs", "axis", "began", "instrument", "keys", "members", "process", "scale", "step",
                 "sums", "time", "type", "values")  # fmt: skip

    def __init__(self, process: Process, kind: PointType, rate: float, attrs: Attrs) -> None:
        self.process, self.type, self.attrs = process, kind, attrs
        self.step: int | None = None
        """The step from a tag; None for the step of the process."""
        self.axis: str | None = None
        self.instrument = SAMPLES.get(kind)
        self.scale = 1 / rate
        if rate != 1.0 and self.instrument is not None:
            self.attrs = {**attrs, ATTR_SAMPLE_RATE: rate}
        self.keys: dict[str, str] = {}
        """The keys of admitted metrics, by name."""
        self.values: dict[str, float] = {}
        """The values of the next record."""
        self.time = 0
        self.sums: dict[str, float] = {}
        self.members: dict[str, set[str]] = {}
        self.began = 0
        """When the interval of its sums started."""

    def put(self, key: str, value: float, now: int) -> None:
        """Add a value to the pending record; a repeated key starts another, a nanosecond later."""
        values = self.values
        if key in values:
            self._record(self.time, values, self.instrument)
            self.values = {key: value}
            self.time = max(now, self.time + 1)
            return
        if not values:
            self.time = max(now, self.time + 1)
            self.process.waiting.append(self)
        values[key] = value

    def add(self, key: str, value: float, now: int) -> None:
        """Add to a sum."""
        if not self.sums:
            self._count(now)
        self.sums[key] = self.sums.get(key, 0.0) + value * self.scale

    def add_member(self, key: str, member: str, now: int) -> None:
        """Add a member to a set."""
        if not self.members:
            self._count(now)
        self.members.setdefault(key, set()).add(member)

    def record_at(self, at: int, key: str, value: float) -> None:
        """Record a value with its own time; a count is not aggregated."""
        made = Instrument("sum", cumulative=False) if self.type == "c" else self.instrument
        self._record(at, {key: value * self.scale if self.type == "c" else value}, made)

    def close(self) -> None:
        """Convert pending values to a record."""
        if self.values:
            self._record(self.time, self.values, self.instrument)
            self.values = {}

    def end_interval(self, now: int) -> None:
        """Record the sums and the set sizes."""
        if self.sums:
            self._record(now, self.sums, Instrument("sum", cumulative=False, start=self.began))
            self.sums = {}
        if self.members:
            self._record(now, {key: float(len(found)) for key, found in self.members.items()}, None)
            self.members = {}

    def _count(self, now: int) -> None:
        self.began = now
        self.process.counting.append(self)

    def _record(self, at: int, values: dict[str, float], instrument: Instrument | None) -> None:
        track = self.process.track
        step, axis = (track.step, track.axis) if self.step is None else (self.step, self.axis)
        self.process.records.append(Metric(at, step, axis, None, values, self.attrs, instrument))  # type: ignore[arg-type]


class Processes:
    """All known processes, up to a limit. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Process] = {}
        self._tracks: dict[tuple[str, int], Track] = {}
        self._series = 0
        self.forgot = False
        """Whether processes were evicted. A holder of references resets this and looks them up again."""

    def __iter__(self) -> Iterator[Process]:
        return iter(self._known.values())

    def find(self, origin: Origin) -> Process | None:
        """Return the process of an origin; None when there are too many."""
        key = origin.key
        process = self._known.get(key)
        if process is None:
            if len(self._known) >= MAX_PROCESSES and not self._make_room():
                return None
            track = self._tracks.setdefault((origin.run, origin.rank), Track())
            process = self._known[key] = Process(origin, track)
            track.members.append(process)
        self.touch(process)
        return process

    def touch(self, process: Process) -> None:
        """Mark a process as active."""
        process.seen = self._clock()

    def admits(self, process: Process, series: int) -> bool:
        """Count a series of a process by its hash; False when there are too many."""
        if series in process.series:
            return True
        if len(process.series) >= MAX_SERIES or (self._series >= MAX_SERIES_IN_ALL and not self._make_room()):
            return False
        process.series.add(series)
        self._series += 1
        return True

    def _make_room(self) -> bool:
        """Evict inactive processes; False when there are none."""
        since = self._clock() - IDLE_SECONDS
        idle = [key for key, process in self._known.items() if process.seen < since and not process.is_busy()]
        for key in idle:
            process = self._known.pop(key)
            self._series -= len(process.series)
            process.track.members.remove(process)
            if not process.track.members:
                del self._tracks[process.origin.run, process.origin.rank]
        self.forgot = self.forgot or bool(idle)
        return bool(idle)
