"""The shipper process: delivers to every sink that the runs of a home request, and exits when all is delivered."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.atomic_files import FileLock
from stepscope.journal.layout import host_name, is_alive
from stepscope.journal.segments import find_writer
from stepscope.sdk.shipping import sink_requests
from stepscope.sdk.shipping.sink_requests import GIVE_UP_SECONDS
from stepscope.sdk.shipping.sink_worker import (
    COUNT_SECONDS,
    MAX_RUNS,
    Report,
    ShipperJournal,
    SinkWorker,
    counters,
    stop_all,
)
from stepscope.sinks.registry import Chosen

LOOK_SECONDS = 0.5
SILENT_SECONDS = 30.0
"""A trainer that has been silent for this long is not waited for; it starts another shipper when it writes again."""


class Shipping:
    """All sink workers of a home: for the writers of `host`, or of all hosts; with `sinks`, all runs go to these."""

    def __init__(self, home: Path, host: str | None = None, sinks: Iterable[Chosen] = ()) -> None:
        self.home, self.host = home, host
        self._given = {each.id: each for each in sinks}
        self.workers: dict[str, SinkWorker] = {}
        self._runs: dict[str, dict[str, float]] = {}
        """The runs that request a sink, by its id, and since when."""
        self._shipper_journal = ShipperJournal(home, host) if host is not None else None
        self._counted_at = 0.0
        self._unreported = True
        """Whether the counters may have changed since they were last recorded."""
        self._checked: dict[str, dict[Path, int]] = {}
        """The segments of each run, with their sizes, before they were last checked."""

    def refresh(self) -> None:
        """Start workers for sinks requested since the last call."""
        wanted = dict(self._given)
        runs: dict[str, dict[str, float]] = {
            name: dict.fromkeys(layout.list_runs(self.home), 0.0) for name in self._given
        }
        if not self._given:
            for request in sorted(self._sink_requests(), key=lambda request: request.since):
                for chosen in request.sinks:
                    wanted[chosen.id] = chosen  # the latest request has the current token
                    runs.setdefault(chosen.id, {})[request.run] = request.since
        self._runs = runs
        for name, chosen in wanted.items():
            worker = self.workers.get(name)
            # One with other options, such as a new token, takes over when the write under way is done.
            if worker is None or (worker.chosen != chosen and worker.stop(0.0)):
                self.workers[name] = self._start_worker(chosen)

    def is_done(self) -> bool:
        """Whether everything is delivered and no trainer is still writing."""
        return all(worker.drained for worker in self.workers.values()) and not self.is_awaited()

    def is_awaited(self) -> bool:
        """Whether a trainer of this host that is served here is still writing."""
        now = time.time()
        for run in set().union(*self._runs.values()):
            for name in layout.list_writers(self.home, run):
                if self._lives(layout.writer_folder(self.home, run, name), now):
                    return True
        return False

    def check_all(self) -> None:
        """Check every journal once more; what is written from now on is not delivered by this check."""
        self._checked = {run: self._sizes(run) for run in set().union(*self._runs.values())}
        for worker in self.workers.values():
            worker.check_all()

    def _sizes(self, run: str) -> dict[Path, int]:
        folders = [layout.writer_folder(self.home, run, name) for name in layout.list_writers(self.home, run)]
        paths = [path for folder in folders for path in layout.list_segments(folder)]
        return {path: layout.size_of(path) for path in paths}

    def gives_up_at(self, moment: float | None) -> None:
        """Set when delivery ends at the latest, for the reports; None while a trainer is waited for."""
        for worker in self.workers.values():
            worker.gives_up_at = moment

    def reports(self) -> list[Report]:
        """Return the state of each sink."""
        return [worker.report() for worker in self.workers.values()]

    def report_counters(self) -> bool:
        """Record the outcome counters in the runs served; return False when they were recorded already.

        Only records of trainers cause another record: the counters are themselves delivered, and counted.
        """
        if self._shipper_journal is None or not self._unreported:
            return False
        self._unreported = False
        self._counted_at = time.monotonic()
        counts = {name: dict(worker.pump.counts) for name, worker in self.workers.items()}
        if any(counts.values()):
            self._shipper_journal.record([counters(counts)], self._newest_runs(*counts))
        return True

    def note_awaited(self) -> None:
        """Note that a trainer is writing, so that the counters are recorded periodically."""
        self._unreported = True
        if time.monotonic() - self._counted_at >= COUNT_SECONDS:
            self.report_counters()
            self._unreported = True

    def stop(self, seconds: float) -> None:
        """Stop all workers after the writes in progress."""
        stop_all(list(self.workers.values()), seconds)
        if self._shipper_journal is not None:
            self._shipper_journal.close()

    def forget_delivered(self) -> bool:
        """Remove the requests of runs whose trainers are gone; call it only when everything is delivered.

        A process first starts its journal, then makes its request, then writes. One that started after the last check
        finds the request gone and makes it again, or is found here, and its request is restored; then return False.
        """
        requests = [] if self._given else self._sink_requests()
        for request in requests:
            sink_requests.forget(self.home, request.run, request.host, server=request.server)
        changed = [each for each in requests if self._sizes(each.run) != self._checked.get(each.run)]
        for each in changed:
            sink_requests.register(self.home, each.run, each.host, each.sinks, server=each.server)
        return not changed

    def _sink_requests(self) -> list[sink_requests.SinkRequest]:
        """Return the requests of runs that no live process delivers itself."""
        found = sink_requests.list_requests(self.home, self.host)
        served = {(request.run, request.host) for request in found if request.server and self._serves(request)}
        return [request for request in found if (request.run, request.host) not in served]

    def _serves(self, request: sink_requests.SinkRequest) -> bool:
        """Whether the process that delivers its own records is alive, or, on another host, still writing."""
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
            write_records=lambda records: self._write_records(chosen.id, records),
        )

    def _write_records(self, sink: str, records: Sequence[bytes]) -> None:
        if self._shipper_journal is not None:
            self._shipper_journal.record(records, self._newest_runs(sink))

    def _newest_runs(self, *sinks: str) -> list[str]:
        requested = {run: since for sink in sinks for run, since in self._runs.get(sink, {}).items()}
        return sorted(requested, key=lambda run: -requested[run])[:MAX_RUNS]

    def _lives(self, folder: Path, now: float) -> bool:
        name = layout.parse_writer(folder.name)
        if name is None or name.host != host_name() or name.pid == os.getpid():
            return False
        newest = _newest(folder)
        return now - newest < SILENT_SECONDS and is_alive(name.pid, find_writer(folder).wall_ns or int(newest * 1e9))


def _newest(folder: Path) -> float:
    """Return when a writer last wrote; 0 if never."""
    try:
        return max(path.stat().st_mtime for path in layout.list_segments(folder)[-1:])
    except (OSError, ValueError):
        return 0.0


def lock_home(home: Path, host: str) -> FileLock:
    """Take the lock that the one shipper of a home on a host holds; Locked, with its pid, when another has it."""
    path = layout.shipping_folder(home) / f"{host}.lock"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return FileLock(path)


def ship(
    shipping: Shipping,
    *,
    wait: bool = True,
    seconds: float = GIVE_UP_SECONDS,
    on_reports: Callable[[list[Report]], None] = lambda reports: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Deliver everything; return False if that takes longer than `seconds` after the last trainer ended.

    Without `wait`, trainers that are still writing are not waited for.
    """
    last = clock()
    checked = False
    while True:
        shipping.refresh()
        awaited = wait and shipping.is_awaited()
        if awaited:
            shipping.note_awaited()
        done = not awaited and all(worker.drained for worker in shipping.workers.values())
        if done and checked and not shipping.report_counters():
            return True
        if done:
            shipping.check_all()
        checked = done
        now = clock()
        last = now if awaited else last
        shipping.gives_up_at(None if awaited else time.time() + seconds - (now - last))
        if now - last > seconds:
            return False
        on_reports(shipping.reports())
        # A destination that does not answer for minutes is asked about less and less often.
        sleep(0.02 if done else LOOK_SECONDS if awaited else min(max((now - last) / 20, 0.05), LOOK_SECONDS))
