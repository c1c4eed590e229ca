"""What diagnosis and alerts cost a hub: processor time while it catches up and at a live rate, and memory."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import hub_journals as journals
from benchmarks.hub_process import own_bytes
from benchmarks.spawn import fresh

RANKS = 8
CASES = ("points, 1 in a record", "points, 5 in a record", "spans")
THREADS = {"stepscope-pump": "pump", "stepscope-alerts": "alerts", "stepscope-diagnosing": "diagnosis"}
KEYS = 100
"""Keys in one record of the live load."""


def child(params: dict[str, Any]) -> dict[str, float]:
    """Measure one hub in this process."""
    with tempfile.TemporaryDirectory(prefix="stepscope-cpu-", ignore_cleanup_errors=True) as name:
        return _MODES[params["mode"]](Path(name), params)


def _catch_up(folder: Path, params: dict[str, Any]) -> dict[str, float]:
    """Store journals that were written before; processor time of each thread until all is stored."""
    items = _write(folder / "staging", params["case"], params["scale"])
    hub = _open(folder, listeners=params["listeners"])
    (folder / "staging" / "runs").rename(folder / "home" / "runs")
    used = _Used()
    hub.start()
    used.watch()
    while hub.counters.total("stored", "folder") < items["records"]:
        time.sleep(0.005)
    found = used.seconds()
    hub.close()
    return {each: seconds / items["items"] * 1e6 for each, seconds in found.items()}


def _write(home: Path, case: str, scale: float) -> dict[str, int]:
    steps = int(100_000 * scale)
    if case == CASES[0]:
        records = journals.write_series(home, "one", int(5_000_000 * scale))
        return {"records": records, "items": records}
    if case == CASES[1]:
        records = journals.write_metrics(home, "big", RANKS, steps)
        return {"records": records, "items": records * len(journals.KEYS)}
    records = journals.write_spans(home, "big", RANKS, steps)
    return {"records": records, "items": records}


def _open(folder: Path, *, listeners: bool) -> Any:
    from stepscope.hub.home import HubHome
    from stepscope.hub.home_store import open_home_store
    from stepscope.hub.security.tokens import Tokens
    from stepscope.hub.service import Hub, HubOptions
    from stepscope.hub.serving.serve import SWITCH_SECONDS
    from stepscope.hub.threads import Topic

    home = folder / "home"
    kept = HubHome(home)
    hub = Hub(HubOptions(home=home), kept, open_home_store(kept), Tokens(home / "hub" / "tokens.json"))
    sys.setswitchinterval(SWITCH_SECONDS)
    if not listeners:
        hub.pump.stored = Topic()
        hub.pump.stored.subscribe(hub.presence.take)
        for each in (hub.alerting, hub.diagnosing):
            each.start = lambda: None  # type: ignore[method-assign]
    return hub


class _Used:
    """Processor time from now on, of the process and of its threads by name."""

    def __init__(self) -> None:
        self._begun = time.process_time()
        self._clocks: dict[str, int] = {}

    def watch(self) -> None:
        """Find the threads of the hub."""
        for thread in threading.enumerate():
            if thread.name in THREADS and thread.ident is not None:
                self._clocks[THREADS[thread.name]] = time.pthread_getcpuclockid(thread.ident)

    def seconds(self) -> dict[str, float]:
        """What was used since: by the whole process, and by each thread."""
        whole = time.process_time() - self._begun
        return {"all": whole} | {name: time.clock_gettime(clock) for name, clock in self._clocks.items()}


def _live(folder: Path, params: dict[str, Any]) -> dict[str, float]:
    """Append to journals at a steady rate while the hub follows; percent of a core that the hub takes."""
    home = folder / "home"
    home.mkdir()
    (home / "alerts.yaml").write_text(_rules(params["rules"]))
    writing = _Writing(home, params["series"], params["rate"])
    hub = _open(folder, listeners=params["listeners"])
    try:
        hub.start()
        writing.go(5.0)
        deadline = time.monotonic() + 40
        while params["listeners"] and not hub.diagnosing.health()["live_runs"] and time.monotonic() < deadline:
            writing.go(2.0)  # series are met, rules matched and the first records replayed once
        used = _Used()
        used.watch()
        before = used.seconds()
        begun, own = time.monotonic(), time.thread_time()
        written = writing.go(params["seconds"])
        took, mine = time.monotonic() - begun, time.thread_time() - own
        found = {name: (now - before[name]) / took * 100 for name, now in used.seconds().items()}
        found["all"] -= mine / took * 100
        deadline = time.monotonic() + 30
        while hub.counters.total("stored", "folder") < writing.records and time.monotonic() < deadline:
            time.sleep(0.05)
        stored, health = hub.counters.total("stored", "folder"), hub.diagnosing.health()
        rules, _ = hub.alerting.rules()
        return found | {
            "points_per_s": written / took,
            "stored": stored / writing.records,
            "live_runs": health["live_runs"],
            "overflows": health["overflows"],
            "watched": float(sum(each.series for each in rules)),
            "passed_over": hub.alerting.passed_over,
        }
    finally:
        hub.close()
        writing.close()


MARKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
"""Millions of points after which memory is measured."""
MAX_BEHIND = 2000
"""Records that may wait for the hub; a writer that is faster would measure a queue."""


def _memory(folder: Path, params: dict[str, Any]) -> dict[str, float]:
    """Append as fast as the hub follows; the memory of the process, files left out, after so many points."""
    home = folder / "home"
    home.mkdir()
    (home / "alerts.yaml").write_text(_rules(params["rules"]))
    writing = _Writing(home, params["series"], 1e12)
    hub = _open(folder, listeners=True)
    found: dict[str, float] = {}
    try:
        hub.start()
        for mark in [each for each in MARKS if each * 1e6 <= params["points"]]:
            while writing.records * KEYS < mark * 1e6:
                writing.go(0.0)
                while writing.records - hub.counters.total("stored", "folder") > MAX_BEHIND:
                    time.sleep(0.01)
            _settle(hub, writing.records)
            found[f"{mark:g} M"] = own_bytes() / 1e6
            print(
                f"[{mark:g} M points] {own_bytes() / 1e6:.0f} MB, {time.process_time():.0f} s",
                file=sys.stderr,
                flush=True,
            )
        return found | {
            "live_runs": hub.diagnosing.health()["live_runs"],
            "overflows": hub.diagnosing.health()["overflows"],
        }
    finally:
        hub.close()
        writing.close()


def _settle(hub: Any, records: int) -> None:
    """Wait until everything is stored and diagnosed."""
    while hub.counters.total("stored", "folder") < records or hub.diagnosing.is_waiting("live"):
        time.sleep(0.1)


def _rules(count: int) -> str:
    """Rules on single keys, on patterns, and over all ranks."""
    lines = ["rules:"]
    for at in range(count):
        layer = f"trainer/layers.{at % 95}"
        key = (f"{layer}/activation_mean", f"{layer}*", "trainer/loss")[at % 3]
        over = "\n    over_ranks: max" if at % 5 == 0 else ""
        lines.append(f"  - name: rule {at}\n    key: {key}\n    when: '> {1000 + at}'\n    for: 5 s{over}")
    return "\n".join(lines) + "\n"


class _Writing:
    """Journals of several ranks that grow at a steady rate: five metrics with a role in each hundred."""

    def __init__(self, home: Path, series: int, rate: float) -> None:
        from stepscope.journal.segments import Journal
        from stepscope.model.ports import Writer

        ranks = max(series // KEYS, 1)
        self._period = series / rate
        self._names = (*journals.KEYS, *(f"layers.{at}/activation_mean" for at in range(KEYS - len(journals.KEYS))))
        self._rng = random.Random(1)
        self._step = self.records = 0
        self._journals = []
        for rank in range(ranks):
            name = f"r{rank}-a1-cpu-{rank}-ab"
            who = Writer(
                id=name, run="live", project="bench", rank=rank, world_size=ranks, host="cpu", pid=1000 + rank,
                wall_ns=time.time_ns(),
            )  # fmt: skip
            self._journals.append(Journal(home / "runs" / "live" / who.id, who))

    def go(self, seconds: float) -> int:
        """Write for so long, a step at least; the number of values written."""
        from msgspec import msgpack

        from stepscope.model.records import Metric

        end, written, due = time.monotonic() + seconds, 0, time.monotonic()
        while not written or time.monotonic() < end:
            noise = [1 + 0.02 * self._rng.gauss(0, 1) for _ in self._names]
            values = {name: noise[at] * (2.0 if at < 2 else 1.0) for at, name in enumerate(self._names)}
            packed = msgpack.encode(Metric(time.time_ns(), self._step, None, "trainer", values))
            for journal in self._journals:
                journal.append([packed])
                due += self._period / len(self._journals)
                self.records += 1
                written += len(values)
                time.sleep(max(due - time.monotonic(), 0))
            self._step += 1
        return written

    def close(self) -> None:
        """Close the journals."""
        for journal in self._journals:
            journal.close()


_MODES = {"live": _live, "memory": _memory, "catch_up": _catch_up}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=tuple(_MODES))
    parser.add_argument("--scale", type=float, default=0.1, help="share of 5 M points and 2.4 M spans (0.1)")
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=10_000, help="points a second (10,000)")
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--points", type=float, default=16e6, help="points of the longest run in the memory mode (16 M)"
    )
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a measurement may take (600)")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    cases = CASES if args.mode == "catch_up" else (args.mode,)
    for case in cases:
        for listeners in (False, True) if args.mode != "memory" else (True,):
            found = fresh("benchmarks.hub_cpu", {**vars(args), "case": case, "listeners": listeners}, args.limit)
            told = "  ".join(f"{name} {value:.2f}" for name, value in found.items())
            unit = {"live": "% of a core", "memory": "MB"}.get(args.mode, "us an item")
            print(f"{case:<22} {'with' if listeners else 'without':<8} {unit}: {told}", flush=True)


if __name__ == "__main__":
    main()
