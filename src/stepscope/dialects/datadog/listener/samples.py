"""DogStatsD lines as records, grouped by process, with their step; counts and sets are aggregated."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from stepscope.dialects.datadog.listener.processes import TOO_MANY_RUNS, TOO_MANY_SERIES, Process, Processes, Stream
from stepscope.dialects.datadog.wire import dogstatsd_lines as lines
from stepscope.dialects.datadog.wire.dogstatsd_lines import Malformed
from stepscope.dialects.datadog.wire.items import LONGEST
from stepscope.dialects.datadog.wire.records import check_record, event_record
from stepscope.dialects.datadog.wire.tags import Place, key_of, place_of, step_axis, step_strength
from stepscope.model.records import FIRST_STEP, LAST_STEP, Record
from stepscope.wire.otlp.decode.origin import Origin

MAX_STREAMS = 20_000
"""The number of cached combinations of type, rate and tags."""
MAX_MEMBERS = 50_000
"""The limit of set members in memory; beyond it the interval ends early."""
SELF_TELEMETRY = "datadog.dogstatsd.client."
_AT = "\n"
"""Separates a line from its sender in the key of a stream; no line contains it."""
_FAR = 2.0**53


class Drained(NamedTuple):
    """Records of one process, in order of arrival."""

    origin: Origin
    records: list[Record]


class Samples:
    """Converts lines to records. Used by the listening thread only."""

    def __init__(
        self,
        processes: Processes,
        host: str = "",
        on_telemetry: Callable[[str, float], None] = lambda name, value: None,
    ) -> None:
        self.malformed: Counter[str] = Counter()
        """Rejected lines since the last `drain`, by reason."""
        self.last: Process | None = None
        """The process of the last accepted line."""
        self.lines = 0
        """Lines accepted since the last `drain`."""
        self._processes = processes
        self._host = host
        """The name of this machine."""
        self._on_telemetry = on_telemetry
        """Called with the name and value of each counter that a client reports about itself."""
        self._streams: dict[str, Stream] = {}
        """Streams by the text after a line's value, and the sender."""
        self._members = 0

    def take(self, text: str, now: int, host: str = "") -> None:
        """Process the lines of a datagram; `host` is a remote sender's, `now` is the time of arrival."""
        streams = self._streams
        taken = None
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        found = text.split("\n")
        for line in found:
            head, _, rest = line.partition("|")
            stream = streams.get(rest + _AT + host if host else rest)
            if stream is not None:
                name, _, value = head.partition(":")
                key = stream.keys.get(name)
                if key is not None and "_" not in value:
                    try:
                        number = float(value)
                    except ValueError:
                        number = _FAR
                    if -_FAR < number < _FAR:  # values that are not finite or not exact as a float take the slow path
                        values = stream.values
                        if values and key not in values:
                            values[key] = number  # most values: `put`, without the call
                        elif stream.type == "c":
                            stream.add(key, number, now)
                        else:
                            stream.put(key, number, now)
                        taken = stream
                        continue
            if line:
                try:
                    taken = self._take_line(line, now, host) or taken
                except Malformed as error:
                    self.malformed[str(error)] += 1
        if taken is not None:
            self.last = taken.process
        self.lines += len(found)

    def settle(self) -> None:
        """Convert pending values to records; values with the same time share one."""
        for process in self._processes:
            if process.waiting:
                process.close_values()

    def end_interval(self, now: int) -> None:
        """Record the counts and set sizes."""
        for process in self._processes:
            if process.counting:
                process.end_interval(now)
        self._members = 0

    def drain(self) -> Iterator[Drained]:
        """Return and clear the finished records."""
        self.settle()
        self.lines = 0
        for process in self._processes:
            if process.records:
                records, process.records = process.records, []
                self._processes.touch(process)
                yield Drained(process.origin, records)

    def _take_line(self, line: str, now: int, host: str) -> Stream | None:
        if line.startswith(lines.EVENT):
            self._event(line, now, host)
            return None
        if line.startswith(lines.CHECK):
            self._check(line, now, host)
            return None
        head, bar, rest = line.partition("|")
        name, colon, value = head.partition(":")
        if not name or not colon or not bar:
            raise Malformed(lines.NO_TYPE if name and colon else lines.NO_VALUE if name else lines.NO_NAME)
        fields, at = lines.split_time(rest)
        if name.startswith(SELF_TELEMETRY):
            self._on_telemetry(name.removeprefix(SELF_TELEMETRY), lines.read_count(value))
            return None
        stream = self._stream(fields, host)
        self._values(stream, name, value, at, now)
        return stream

    def _values(self, stream: Stream, name: str, value: str, at: int | None, now: int) -> None:
        strength = step_strength(name) if stream.type == "g" else None
        if stream.type == "s":
            key = self._key(stream, name, remember=False)
            self._members += 1
            if self._members > MAX_MEMBERS:
                self.end_interval(now)
            stream.add_member(key, value, now)
            return
        read = lines.read_count if stream.type == "c" else lines.read_number
        numbers = [read(part) for part in value.split(":")]
        key = self._key(stream, name, remember=strength is None)
        for number in numbers:
            if strength is not None and number == number // 1 and FIRST_STEP <= number <= LAST_STEP:
                stream.process.track.advance(int(number), stream.axis or step_axis(name), strength, now)
            if at is not None:
                stream.record_at(at, key, number)
            elif stream.type == "c":
                stream.add(key, number, now)
            else:
                stream.put(key, number, now)

    def _key(self, stream: Stream, name: str, *, remember: bool = True) -> str:
        """Return the key of a metric if its series is within the limit."""
        key = stream.keys.get(name)
        if key is None:
            if len(name) > LONGEST:
                raise Malformed(lines.LONG_NAME)
            key = key_of(name)
            series = hash((key, stream.type, *sorted(map(str, stream.attrs.items()))))
            if not self._processes.admits(stream.process, series):
                raise Malformed(TOO_MANY_SERIES)
            if remember:
                stream.keys[name] = key
        return key

    def _stream(self, fields: str, host: str) -> Stream:
        where = fields + _AT + host if host else fields
        stream = self._streams.get(where)
        if stream is None:
            read = lines.read_fields(fields)
            place = place_of(read.tags, host or self._host, read.container, read.external)
            stream = Stream(self._process(place), read.type, read.rate, place.attrs)
            stream.step, stream.axis = place.step, place.axis
            if len(self._streams) >= MAX_STREAMS:
                self._streams.clear()
            self._streams[where] = stream
        return stream

    def _process(self, place: Place) -> Process:
        process = self._processes.find(place.origin)
        if self._processes.forgot:  # cached streams must not refer to an evicted process
            self._processes.forgot = False
            self._streams.clear()
        if process is None:
            raise Malformed(TOO_MANY_RUNS)
        self.last = process
        return process

    def _event(self, line: str, now: int, host: str) -> None:
        notice = lines.read_event(line, now)
        place = place_of(notice.tags, notice.host or host or self._host, notice.container, notice.external)
        process = self._process(place)
        process.records.append(event_record(notice, place.attrs, _step(place, process)))

    def _check(self, line: str, now: int, host: str) -> None:
        check = lines.read_check(line, now)
        place = place_of(check.tags, check.host or host or self._host, check.container, check.external)
        process = self._process(place)
        process.records.append(check_record(check, place.attrs, _step(place, process)))


def _step(place: Place, process: Process) -> tuple[int | None, str | None]:
    return (process.track.step, process.track.axis) if place.step is None else (place.step, place.axis)
