"""State changes of a sink as `stepscope.sink.*` events, and its counters, recorded into the runs it serves."""

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stepscope.journal import layout
from stepscope.journal.segments import Journal, find_writer
from stepscope.model.names import SEVERITIES
from stepscope.model.records import EVENT, METRIC
from stepscope.sdk.context import NO_MARK, pack

DEAD, BACK = "stepscope.sink.dead", "stepscope.sink.back"
FIRST, REFUSED = "stepscope.sink.first_delivery", "stepscope.sink.refused"
COUNT_SECONDS = 30.0
"""Between two records of the counters."""
DEAD_SECONDS = 10.0
"""Minimum time between two `dead` events; a sink that fails again sooner is reported later, or not at all."""
REFUSED_SECONDS, MAX_SECONDS = 60.0, 3600.0
"""Time between two `refused` events, doubled each time, because the same sink may reject the event itself."""
MAX_BYTES = 1024 * 1024
"""Limit on what a shipper writes into one run."""
MAX_RUNS = 16
"""Limit on the runs that are written to; the latest ones count."""

WriteRecords = Callable[[Sequence[bytes]], None]
"""Writes packed records into runs; must not raise or block."""


class Watched(Protocol):
    """The parts of a pump that are watched."""

    counts: "Counter[str]"
    problem: str

    @property
    def is_stuck(self) -> bool:
        """Whether the sink counts as dead."""


class Watch:
    """Watches a pump and records state changes of its sink; called by one thread after each step.

    The place is a function because a sink may know its address only once it is open.
    """

    def __init__(
        self,
        sink: str,
        place: Callable[[], str],
        write_records: WriteRecords,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._place = sink, place
        self._write_records, self._clock = write_records, clock
        self._delivered = False
        self._dead_since: float | None = None
        self._next_dead_event = float("-inf")
        self._refused: Counter[str] = Counter()
        self._refused_total = 0
        self._next_refused_event, self._refused_pause = float("-inf"), REFUSED_SECONDS

    def look(self, pump: Watched) -> None:
        """Record changes since the last call; usually there are none, and this costs a few comparisons."""
        if not self._delivered and pump.counts["written"]:
            self._delivered = True
            self._record(FIRST, "INFO", {})
        if pump.is_stuck != (self._dead_since is not None):
            self._report_state(pump)
        if pump.counts["rejected"] + pump.counts["dropped"] != self._refused_total:
            self._report_refusals(pump.counts)

    def _report_state(self, pump: Watched) -> None:
        now = self._clock()
        if self._dead_since is not None:
            self._record(BACK, "INFO", {"seconds": round(now - self._dead_since, 3)})
            self._dead_since = None
        elif now >= self._next_dead_event:
            self._dead_since, self._next_dead_event = now, now + DEAD_SECONDS
            self._record(DEAD, "WARN", {"reason": pump.problem})

    def _report_refusals(self, counts: "Counter[str]") -> None:
        now = self._clock()
        if now < self._next_refused_event:
            return
        self._next_refused_event = now + self._refused_pause
        self._refused_pause = min(self._refused_pause * 2, MAX_SECONDS)
        found = Counter({key: count for key, count in counts.items() if key.startswith(("rejected", "dropped"))})
        new = found - self._refused
        self._refused, self._refused_total = found, found["rejected"] + found["dropped"]
        reasons = [key.partition("/")[2] for key, _ in new.most_common() if "/" in key]
        attrs = {"rejected": new["rejected"], "dropped": new["dropped"], "reason": next(iter(reasons), "")}
        self._record(REFUSED, "WARN", attrs)

    def _record(self, name: str, severity: str, attrs: Mapping[str, Any]) -> None:
        details = {"sink": self._sink, "place": self._place(), **attrs}
        record = (EVENT, time.time_ns(), *NO_MARK, None, None, SEVERITIES[severity], name, details)
        self._write_records([pack(record)])


def counters(counts: Mapping[str, Mapping[str, int]]) -> bytes:
    """Pack the outcome counts of sinks as one metric: `sink/NAME/written` and so on."""
    values = {
        f"sink/{sink}/{outcome}": number
        for sink, outcomes in counts.items()
        for outcome, number in outcomes.items()
        if "/" not in outcome
    }
    return pack((METRIC, time.time_ns(), *NO_MARK, "stepscope", values))


class ShipperJournal:
    """The shipper's own writer in each run it serves; it does not affect the state of the run.

    What it writes is delivered like everything else in the run, so the limits above keep it small.
    """

    def __init__(self, home: Path, host: str, *, most_bytes: int = MAX_BYTES) -> None:
        self._home, self._host, self._most_bytes = home, host, most_bytes
        self._lock = threading.Lock()
        self._journals: dict[tuple[str, int], Journal] = {}
        self._sizes: Counter[str] = Counter()

    def record(self, records: Sequence[bytes], runs: Iterable[str]) -> None:
        """Write records into runs; a deleted run or a full disk is ignored."""
        size = sum(map(len, records))
        with self._lock:
            for run in runs:
                if self._sizes[run] + size <= self._most_bytes:
                    with contextlib.suppress(OSError, ValueError):
                        journal = self._journal(run)
                        self._sizes[run] += journal.append(records) if journal is not None else 0

    def close(self) -> None:
        """Close all journals."""
        with self._lock:
            for journal in self._journals.values():
                journal.close()
            self._journals.clear()

    def _journal(self, run: str) -> Journal | None:
        names = [layout.parse_writer(name) for name in layout.list_writers(self._home, run)]
        here = [name for name in names if name is not None and name.host == self._host]
        if not here:
            return None
        beside = min(here, key=lambda name: (-name.attempt, name.rank, name.token))
        key = (run, beside.attempt)
        if key not in self._journals:
            self._journals[key] = self._open(run, beside)
        return self._journals[key]

    def _open(self, run: str, beside: layout.WriterName) -> Journal:
        pid = os.getpid()
        name = beside._replace(pid=pid, token=os.urandom(6).hex())
        known = find_writer(layout.writer_folder(self._home, run, str(beside)))
        writer = msgspec.structs.replace(
            known,
            id=str(name),
            pid=pid,
            main=False,
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            resource={**known.resource, "process.pid": pid, "process.command": "stepscope ship"},
        )
        return Journal(layout.writer_folder(self._home, run, str(name)), writer)
