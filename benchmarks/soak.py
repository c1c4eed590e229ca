"""Soak a hub with all dialects: the slope of its memory, and every record counted. `--minutes 60 --state FILE`."""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a script: its folder is on the path, its package is not
    sys.path[0] = str(ROOT)

from benchmarks import report  # noqa: E402
from benchmarks.hub_process import HubError, HubProcess  # noqa: E402
from benchmarks.soak_clients import KINDS, TRAINED  # noqa: E402
from benchmarks.soak_load import Reader, Sender, Watcher  # noqa: E402
from benchmarks.spawn import fresh, scratch  # noqa: E402

TRAINERS = ("journal", "sink")
"""How what they record comes to the hub: by the home that both share, and by the sink of a home of its own."""
SAMPLE_S = 5.0
STATE_S = 60.0
SPAN_S = 600.0
SETTLED_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The hub at one moment, `at` being seconds since the start."""

    at: float
    rss_mb: float
    own_mb: float
    cpu_s: float
    lag_s: float


@dataclass(frozen=True, slots=True)
class Slope:
    """How memory changes after the warm-up: megabytes an hour by least squares, and the error of that."""

    mb_per_hour: float
    error: float
    samples: int


def main(argv: list[str] | None = None) -> int:
    """Run, print the tables, and return 0 when memory does not climb, nothing is lost or twice and nothing failed."""
    args = _arguments(argv)
    with scratch() as folder:
        hub = HubProcess(folder, "--dogstatsd-socket", f"unixstream://{folder}/dogstatsd.sock")
        soak = Soak(hub, args, folder)
        signal.signal(signal.SIGTERM, lambda *_: soak.stop.touch())
        try:
            samples = soak.run()
            rows = soak.counted()
            hub.stop()
        finally:
            hub.close()
    print(report.machine())
    print(soak.told(samples))
    print()
    print(report.as_text([["what", "sent", "stored", "lost", "twice"], *rows]))
    slope = slope_of(samples, args.warm_up * 60)
    climbing = slope.mb_per_hour - 2 * slope.error > args.most
    bad = [row[0] for row in rows if row[3:] != ["0", "0"]]
    failures = soak.failures()
    for failure in failures:
        print(f"FAILED: {failure}")
    verdict = "holds" if not (bad or climbing or failures) else "BROKEN"
    print(f"verdict: {verdict}" + (f"; lost or twice: {', '.join(bad)}" * bool(bad)) + ("; memory climbs" * climbing))
    return 0 if verdict == "holds" else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up", type=float, help="minutes before the slope is taken (half)")
    parser.add_argument(
        "--rate", type=float, default=500, help="items a second of each client, and how often it is read"
    )
    parser.add_argument("--state", type=Path, help="a file that has the figures so far, written every minute")
    parser.add_argument("--most", type=float, default=20, help="megabytes an hour that memory may climb")
    args = parser.parse_args(argv)
    args.warm_up = args.minutes / 2 if args.warm_up is None else args.warm_up
    return args


class Soak:
    """One hub, its clients, readers, watchers and trainers; a file `stop` ends it early, with all its counts."""

    def __init__(self, hub: HubProcess, args: argparse.Namespace, folder: Path) -> None:
        self._hub, self._args, self._folder = hub, args, folder
        self.stop = folder / "stop"
        self._done = threading.Event()
        self.runs = [f"soak-{how}" for how in TRAINERS]
        self.senders = [Sender(hub, kind, args.rate, self._done) for kind in KINDS]
        self.readers = [Reader(hub.port, self.runs, pause / args.rate, self._done) for pause in (100, 250)]
        self.watchers = [Watcher(hub.port, query, self._done) for query in ("", f"?run={self.runs[0]}")]
        self._logged: dict[str, Any] = {}

    def run(self) -> list[Sample]:
        """Load the hub until the trainers have finished."""
        threads = (*self.senders, *self.readers, *self.watchers)
        with ThreadPoolExecutor(len(TRAINERS)) as pool:
            trainers = [pool.submit(self._train, how, run) for how, run in zip(TRAINERS, self.runs, strict=True)]
            for thread in threads:
                thread.start()
            samples = self._watch(trainers)
            self._done.set()
            for thread in threads:
                thread.join(600)
            self._logged = {run: future.result() for run, future in zip(self.runs, trainers, strict=True)}
        return samples

    def _train(self, how: str, run: str) -> Any:
        seconds = self._args.minutes * 60
        home, url = (
            (self._hub.home, "") if how == "journal" else (self._folder / run, f"http://127.0.0.1:{self._hub.port}")
        )
        params = {"run": run, "home": str(home), "seconds": seconds, "url": url, "stop": str(self.stop)}
        return fresh("benchmarks.soak_load", params, limit_s=seconds + 600)

    def _watch(self, trainers: list[Future[Any]]) -> list[Sample]:
        """Take samples until the trainers have finished."""
        begun, told = time.monotonic(), 0.0
        samples: list[Sample] = []
        hub = self._hub
        while not all(future.done() for future in trainers):
            at = time.monotonic() - begun
            try:
                lag = float(hub.get("/api/health")["lag"]["seconds"])
            except (HubError, OSError, HTTPException) as error:  # on a busy machine: the next sample is taken
                print(f"no answer: {error!r}", file=sys.stderr)
                continue
            samples.append(Sample(at, hub.rss_bytes() / 1e6, hub.own_bytes() / 1e6, hub.cpu_s(), lag))
            if self._args.state and at - told >= STATE_S:
                told = at
                self._args.state.write_text(self.told(samples) + "\n")
            time.sleep(SAMPLE_S)
        return samples

    def told(self, samples: list[Sample]) -> str:
        """The figures so far: memory by ten minutes, its slope, and what clients and readers were told."""
        slope = slope_of(samples, self._args.warm_up * 60)
        answers = sum((reader.statuses for reader in self.readers), Counter[int]())
        clients = [[s.kind.name, f"{s.sent:,}", f"{s.again:,}", f"{s.unknown:,}"] for s in self.senders]
        return "\n\n".join(
            (
                report.as_text(_memory_table(samples)),
                f"its own memory after {self._args.warm_up:g} min: {slope.mb_per_hour:+.1f} MB/hour "
                f"(± {slope.error:.1f}, {slope.samples} samples; at most {self._args.most:g})",
                report.as_text([["client", "acknowledged", "refused for now", "no answer in time"], *clients]),
                f"reads by status, 0 being no answer in time: {dict(sorted(answers.items()))}",
            )
        )

    def counted(self) -> list[list[str]]:
        """Count until nothing is lost, or until nothing more is stored for a minute: a busy hub may be behind."""
        rows, since = self._count(), time.monotonic()
        while any(row[3] != "0" for row in rows) and time.monotonic() - since < SETTLED_S:
            time.sleep(SAMPLE_S)
            before, rows = rows, self._count()
            if rows != before or self._hub.get("/api/health")["lag"]["seconds"] > 0:
                since = time.monotonic()
        return rows

    def _count(self) -> list[list[str]]:
        """A row for each kind of record: sent, stored, lost, twice."""
        hub = self._hub
        rows = [_row(s.kind.name, s.sent, *s.kind.items.stored(hub, s.run_id)) for s in self.senders]
        for run, sent in self._logged.items():
            rows += [_row(f"{run} {name}", sent[name], *items.stored(hub, run)) for name, items in TRAINED.items()]
        return rows

    def failures(self) -> list[str]:
        """What went wrong beside losses. An answer that came too late is none: the load of the machine makes it."""
        found = [f"{sender.kind.name}: {sender.error}" for sender in self.senders if sender.error]
        found += [f"{sender.kind.name} did not end" for sender in self.senders if sender.is_alive()]
        for reader in self.readers:
            bad = {status: times for status, times in reader.statuses.items() if status >= 500 and status != 503}
            found += [f"readers: {bad}"] if bad else []
            found += ["a reader got no answer"] if not reader.statuses[200] else []
        for watcher in self.watchers:
            if not (watcher.events.keys() & {"records", "runs"}):
                found.append(f"a watcher saw no records: {dict(watcher.events)}")
        return found


def _row(what: str, sent: int, stored: int, different: int) -> list[str]:
    return [what, f"{sent:,}", f"{stored:,}", f"{sent - different:,}", f"{stored - different:,}"]


def slope_of(samples: list[Sample], after_s: float) -> Slope:
    """Fit a line through the memory of its own in the samples after the warm-up."""
    points = [(sample.at / 3600, sample.own_mb) for sample in samples if sample.at >= after_s]
    if len(points) < 3:
        return Slope(0.0, float("inf"), len(points))
    middle = sum(x for x, _ in points) / len(points)
    level = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - level) for x, y in points) / spread
    rest = sum((y - level - slope * (x - middle)) ** 2 for x, y in points)
    return Slope(slope, (rest / (len(points) - 2) / spread) ** 0.5, len(points))


def _memory_table(samples: list[Sample]) -> report.Table:
    """A row for each ten minutes: the medians of memory, the share of a core, and how far it was behind at most."""
    table = [["minutes", "memory MB", "its own MB", "% of a core", "seconds behind"]]
    for number in range(int(samples[-1].at // SPAN_S) + 1 if samples else 0):
        found = [sample for sample in samples if sample.at // SPAN_S == number]
        if len(found) < 2:
            continue
        first, last = found[0], found[-1]
        table.append(
            [
                f"{first.at / 60:.0f} to {last.at / 60:.0f}",
                f"{statistics.median(sample.rss_mb for sample in found):.0f}",
                f"{statistics.median(sample.own_mb for sample in found):.0f}",
                f"{(last.cpu_s - first.cpu_s) / (last.at - first.at) * 100:.0f}",
                f"{max(sample.lag_s for sample in found):.1f}",
            ]
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
