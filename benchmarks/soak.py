"""Soak a hub: steady load for an hour, the slope of its memory, and every record counted. `--minutes 60`."""

from __future__ import annotations

import argparse
import sys
import threading
import time
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
from benchmarks.measures.hub_load import count  # noqa: E402
from benchmarks.soak_load import Reader, Sender, Watcher  # noqa: E402
from benchmarks.spawn import fresh, scratch  # noqa: E402

TRAINERS = 2
SAMPLE_S = 5.0
SENDERS = (("http", "traces"), ("grpc", "metrics"), ("http", "logs"), ("grpc", "traces"))
TABLES = {"traces": "spans", "metrics": "metrics", "logs": "logs"}


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
    """Run, print the tables, and return 0 when memory does not climb, nothing is lost and nothing failed."""
    args = _arguments(argv)
    with scratch() as folder:
        hub = HubProcess(folder)
        try:
            samples, rows, failures = _soak(hub, args)
            hub.stop()
        finally:
            hub.close()
    slope = slope_of(samples, args.warm_up * 60)
    print(report.machine())
    print(report.as_text(_memory_table(samples)))
    print()
    print(report.as_text([["what", "sent", "stored", "lost"], *rows]))
    lost = [row[0] for row in rows if row[3] != "0"]
    climbing = slope.mb_per_hour - 2 * slope.error > args.most
    print(
        f"\nits own memory after {args.warm_up:g} min: {slope.mb_per_hour:+.1f} MB/hour (± {slope.error:.1f}, "
        f"{slope.samples} samples; at most {args.most:g})"
    )
    for failure in failures:
        print(f"FAILED: {failure}")
    verdict = "holds" if not (lost or climbing or failures) else "BROKEN"
    print(f"verdict: {verdict}" + (f"; lost: {', '.join(lost)}" if lost else "") + ("; memory climbs" * climbing))
    return 0 if verdict == "holds" else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up", type=float, help="minutes before the slope is taken (a quarter, 15 at most)")
    parser.add_argument("--rate", type=float, default=500, help="items a second of each of the four OTLP clients")
    parser.add_argument("--most", type=float, default=20, help="megabytes an hour that memory may climb")
    args = parser.parse_args(argv)
    args.warm_up = min(args.minutes / 4, 15) if args.warm_up is None else args.warm_up
    return args


def _soak(hub: HubProcess, args: argparse.Namespace) -> tuple[list[Sample], list[list[str]], list[str]]:
    done, seconds = threading.Event(), args.minutes * 60
    runs = [f"soak-trainer-{number}" for number in range(TRAINERS)]
    ports = {"http": hub.port, "grpc": hub.grpc_port}
    senders = [Sender(ports, protocol, signal, args.rate, done) for protocol, signal in SENDERS]
    readers = [Reader(hub.port, runs, pause, done) for pause in (0.2, 0.5)]
    watchers = [Watcher(hub.port, query, done) for query in ("", f"?run={runs[0]}")]
    with ThreadPoolExecutor(TRAINERS) as pool:
        trainers = [pool.submit(_train, hub, run, seconds) for run in runs]
        for thread in (*senders, *readers, *watchers):
            thread.start()
        samples = _watch(hub, trainers)
        done.set()
        for thread in (*senders, *readers, *watchers):
            thread.join(30)
        logged = {run: future.result() for run, future in zip(runs, trainers, strict=True)}
    _wait_for_all(hub, senders)
    return samples, _counted(hub, senders, logged), _failures(senders, readers, watchers)


def _train(hub: HubProcess, run: str, seconds: float) -> Any:
    params = {"run": run, "home": str(hub.home), "seconds": seconds}
    return fresh("benchmarks.soak_load", params, limit_s=seconds + 600)


def _watch(hub: HubProcess, trainers: list[Future[Any]]) -> list[Sample]:
    """Take samples until the trainers have finished."""
    begun = time.monotonic()
    samples: list[Sample] = []
    while not all(future.done() for future in trainers):
        try:
            lag = float(hub.get("/api/health")["lag"]["seconds"])
        except (HubError, OSError, HTTPException) as error:  # on a busy machine: the next sample is taken
            print(f"no answer: {error!r}", file=sys.stderr)
            continue
        samples.append(Sample(time.monotonic() - begun, hub.rss_bytes() / 1e6, hub.own_bytes() / 1e6, hub.cpu_s(), lag))
        if len(samples) % 60 == 1:
            print(f"[{samples[-1].at:6.0f} s] {samples[-1].rss_mb:.0f} MB, {lag:.1f} s behind", file=sys.stderr)
        time.sleep(SAMPLE_S)
    return samples


def _wait_for_all(hub: HubProcess, senders: list[Sender]) -> None:
    """Wait until everything acknowledged is stored, and the trainers' journals are read."""
    for protocol in ("http", "grpc"):
        sent = sum(sender.sent for sender in senders if sender.protocol == protocol)
        hub.wait_stored(f"otlp_{protocol}", sent, 600, pause_s=0.5)
    seen = -1
    while (stored := hub.stored("folder")) != seen:
        seen = stored
        time.sleep(3)


def _counted(hub: HubProcess, senders: list[Sender], logged: dict[str, Any]) -> list[list[str]]:
    rows = []
    for sender in senders:
        rows.append(_row(sender.run_id, sender.sent, count(hub, sender.run_id, TABLES[sender.signal])))
    for run, sent in logged.items():
        number = f"(SELECT max(run) FROM runs WHERE id = '{run}')"
        series = f"(SELECT series FROM series WHERE run = {number} AND key LIKE 'trainer/%')"
        points = int(hub.sql(f"SELECT count() FROM metrics WHERE series IN {series}"))
        spans = int(hub.sql(f"SELECT count() FROM spans WHERE run = {number} AND name = 'soak.inner'"))
        events = int(hub.sql(f"SELECT count() FROM logs WHERE run = {number} AND name = 'soak.event'"))
        rows.append(_row(f"{run} points", sent["points"], points))
        rows.append(_row(f"{run} spans", sent["spans"], spans))
        rows.append(_row(f"{run} events", sent["events"], events))
    return rows


def _row(what: str, sent: int, stored: int) -> list[str]:
    return [what, f"{sent:,}", f"{stored:,}", f"{sent - stored:,}"]


def _failures(senders: list[Sender], readers: list[Reader], watchers: list[Watcher]) -> list[str]:
    found = [f"{sender.run_id}: {sender.error}" for sender in senders if sender.error]
    for reader in readers:
        bad = {status: times for status, times in reader.statuses.items() if status == 0 or status >= 500}
        found += [f"readers: {bad}"] if bad else []
        found += ["a reader got no answer"] if not reader.statuses[200] else []
    found += [
        f"a watcher saw no records: {dict(w.events)}" for w in watchers if not (w.events.keys() & {"records", "runs"})
    ]
    return found


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
    """About twenty rows: when, memory, and the share of a core since the row before."""
    every = max(len(samples) // 20, 1)
    picked = samples[::every]
    table = [["minute", "memory MB", "its own MB", "% of a core", "seconds behind"]]
    for before, sample in zip([Sample(0, 0, 0, 0, 0), *picked], picked, strict=False):
        share = (sample.cpu_s - before.cpu_s) / max(sample.at - before.at, 1e-9) * 100 if before.at else 0.0
        table.append(
            [
                f"{sample.at / 60:.1f}",
                f"{sample.rss_mb:.0f}",
                f"{sample.own_mb:.0f}",
                f"{share:.0f}",
                f"{sample.lag_s:.1f}",
            ]
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
