"""The shipper itself: serves every sink that the runs of a home ask for, and ends when all is delivered."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.layout import host_name, is_alive
from stepscope.journal.segments import find_writer
from stepscope.sdk import sink_requests
from stepscope.sdk.sink_events import COUNT_SECONDS, MOST_RUNS, ShipperJournal, counters
from stepscope.sdk.sink_worker import Report, SinkWorker
from stepscope.sinks.registry import Chosen

LOOK_SECONDS = 0.5
SILENT_SECONDS = 30.0
"""A trainer that wrote nothing for so long is not waited for; it calls another shipper when it writes again."""
GIVE_UP_SECONDS = 24 * 3600.0
"""How long a shipper stays for sinks that take nothing when no trainer is left."""


class Shipping:
    """All lines of a home. With `host` only the writers of that host, else all; with `sinks` all runs go to these."""

    def __init__(self, home: Path, host: str | None = None, sinks: Iterable[Chosen] = ()) -> None:
        self.home, self.host = home, host
        self._given = {each.id: each for each in sinks}
        self.workers: dict[str, SinkWorker] = {}
        self._runs: dict[str, dict[str, float]] = {}
        """The runs that want a sink, by the sink's id, and since when."""
        self._shipper_journal = ShipperJournal(home, host) if host is not None else None
        self._counted_at = 0.0
        self._unsaid = True
        """Whether the counters may have changed since they were last recorded."""

    def refresh(self) -> None:
        """Begin to serve what was asked for since the last look."""
        wanted = dict(self._given)
        runs: dict[str, dict[str, float]] = {
            name: dict.fromkeys(layout.list_runs(self.home), 0.0) for name in self._given
        }
        if not self._given:
            for request in sorted(self._sink_requests(), key=lambda request: request.since):
                for chosen in request.sinks:
                    wanted[chosen.id] = chosen  # who asked last knows the token best
                    runs.setdefault(chosen.id, {})[request.run] = request.since
        self._runs = runs
        for name, chosen in wanted.items():
            worker = self.workers.get(name)
            # One with other options, such as a token that was mended, takes over when the write under way is done.
            if worker is None or (worker.chosen != chosen and worker.stop(0.0)):
                self.workers[name] = self._start_worker(chosen)

    def is_done(self) -> bool:
        """Whether all is delivered and no trainer is about to write more."""
        return all(worker.drained for worker in self.workers.values()) and not self.is_awaited()

    def is_awaited(self) -> bool:
        """Whether a trainer of this host that is served here still writes."""
        now = time.time()
        for run in set().union(*self._runs.values()):
            for name in layout.list_writers(self.home, run):
                if self._lives(layout.writer_folder(self.home, run, name), now):
                    return True
        return False

    def reports(self) -> list[Report]:
        """How each sink fares."""
        return [worker.report() for worker in self.workers.values()]

    def tell_counters(self) -> bool:
        """Record what became of everything in the runs served; False when that was said already.

        Only records of trainers make it worth saying again: what is said is itself delivered, and counted.
        """
        if self._shipper_journal is None or not self._unsaid:
            return False
        self._unsaid = False
        self._counted_at = time.monotonic()
        counts = {name: dict(worker.pump.counts) for name, worker in self.workers.items()}
        if any(counts.values()):
            self._shipper_journal.say([counters(counts)], self._told_runs(*counts))
        return True

    def note_awaited(self) -> None:
        """Take note that a trainer writes: the counters are recorded now and then while it does."""
        self._unsaid = True
        if time.monotonic() - self._counted_at >= COUNT_SECONDS:
            self.tell_counters()
            self._unsaid = True

    def stop(self, seconds: float) -> None:
        """End all lines after the writes under way."""
        deadline = time.monotonic() + seconds
        for worker in self.workers.values():
            worker.stop(0.0)
        for worker in self.workers.values():
            worker.stop(max(deadline - time.monotonic(), 0.0))
        if self._shipper_journal is not None:
            self._shipper_journal.close()

    def forget_delivered(self) -> None:
        """Take back the registrations of runs whose trainers are gone; only to be called when all is delivered."""
        if not self._given:
            for request in self._sink_requests():
                sink_requests.forget(self.home, request.run, request.host, server=request.server)

    def _sink_requests(self) -> list[sink_requests.SinkRequest]:
        """The registrations of runs that no living process delivers by itself."""
        found = sink_requests.list_requests(self.home, self.host)
        served = {(request.run, request.host) for request in found if request.server and self._serves(request)}
        return [request for request in found if (request.run, request.host) not in served]

    def _serves(self, request: sink_requests.SinkRequest) -> bool:
        """Whether a process that said it delivers its records still does: it lives, or elsewhere, writes."""
        if request.host == host_name():
            return request.server != os.getpid() and is_alive(request.server, int(request.since * 1e9))
        folders = [
            layout.writer_folder(self.home, request.run, name) for name in layout.list_writers(self.home, request.run)
        ]
        mine = [each for each in folders if (name := layout.parse_writer(each.name)) and name.pid == request.server]
        return any(time.time() - _newest(each) < SILENT_SECONDS for each in mine)

    def _start_worker(self, chosen: Chosen) -> SinkWorker:
        host = self.host
        return SinkWorker(
            self.home,
            chosen,
            runs=lambda: sorted(self._runs.get(chosen.id, ())),
            wanted=lambda name: host in (None, name.host),
            report=host or "all",
            tell=lambda records: self._tell(chosen.id, records),
        )

    def _tell(self, sink: str, records: Sequence[bytes]) -> None:
        if self._shipper_journal is not None:
            self._shipper_journal.say(records, self._told_runs(sink))

    def _told_runs(self, *sinks: str) -> list[str]:
        asked = {run: since for sink in sinks for run, since in self._runs.get(sink, {}).items()}
        return sorted(asked, key=lambda run: -asked[run])[:MOST_RUNS]

    def _lives(self, folder: Path, now: float) -> bool:
        name = layout.parse_writer(folder.name)
        if name is None or name.host != host_name() or name.pid == os.getpid():
            return False
        newest = _newest(folder)
        return now - newest < SILENT_SECONDS and is_alive(name.pid, find_writer(folder).wall_ns or int(newest * 1e9))


def _newest(folder: Path) -> float:
    """When a writer last wrote; 0 when it has not."""
    try:
        return max(path.stat().st_mtime for path in layout.list_segments(folder)[-1:])
    except (OSError, ValueError):
        return 0.0


def ship(
    shipping: Shipping,
    *,
    wait: bool = True,
    seconds: float = GIVE_UP_SECONDS,
    on_reports: Callable[[list[Report]], None] = lambda reports: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Serve until all is delivered; False when `seconds` passed, with no trainer left, before that.

    Without `wait` trainers that still write are not waited for.
    """
    last = time.monotonic()
    checked = False
    while True:
        shipping.refresh()
        awaited = wait and shipping.is_awaited()
        if awaited:
            shipping.note_awaited()
        done = not awaited and all(worker.drained for worker in shipping.workers.values())
        if done and checked and not shipping.tell_counters():
            return True
        if done:  # once more, with everything looked at anew
            for worker in shipping.workers.values():
                worker.look_again()
        checked = done
        now = time.monotonic()
        last = now if awaited else last
        if now - last > seconds:
            return False
        on_reports(shipping.reports())
        sleep(0.02 if done else LOOK_SECONDS if awaited else 0.05)
