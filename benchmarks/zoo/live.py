"""How soon a hub names what goes wrong in a run of three real processes: inject a fault, wait for the event, repeat."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.zoo.evaluate import write
from benchmarks.zoo.live_rank import AT, FAULTS
from stepscope.cli.child_hub import serving
from stepscope.hub.client import HttpClient

RANKS = 3
KINDS = {
    "nan": ("not_finite",),
    "spike": ("spike",),
    "stall": ("data_stall",),
    "straggler": ("straggler",),
    "killed": ("dead_rank",),
    "hang": ("hang",),
}
"""What each fault may be called."""
LIMITS = {"hang": 10.0}
"""Seconds in which a fault must be named; 3 if not given."""
BEGIN, END = "<!-- live -->", "<!-- /live -->"


class Ranks:
    """Three processes that take steps together, as a collective would make them."""

    def __init__(self, home: Path, fault: str, run: str) -> None:
        self.fault = fault
        self.faulty_at: float | None = None
        """When it went wrong, by the monotonic clock."""
        self._ended = threading.Event()
        self._processes = [_start(home, fault, run, rank) for rank in range(RANKS)]
        self._thread = threading.Thread(target=self._conduct, daemon=True)
        self._thread.start()

    def _conduct(self) -> None:
        while not self._ended.is_set():
            for rank, process in enumerate(self._processes):
                word = _line(process.stdout)
                if word == "fault":
                    self.faulty_at = time.monotonic()
                    if self.fault == "killed" and rank == AT:
                        process.kill()
                    word = _line(process.stdout)
                if not word:
                    return
            for process in self._processes:
                with contextlib.suppress(OSError, ValueError):
                    _tell(process.stdin, "go")

    def end(self) -> None:
        """Kill what is left."""
        self._ended.set()
        for process in self._processes:
            process.kill()
            process.wait()
        self._thread.join(10.0)
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError, ValueError):
                    if stream is not None:
                        stream.close()


def _start(home: Path, fault: str, run: str, rank: int) -> "subprocess.Popen[str]":
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
    who = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    env = {**kept, **who, "STEPSCOPE_HOME": str(home), "STEPSCOPE_RUN_ID": run}
    line = [sys.executable, "-m", "benchmarks.zoo.live_rank", fault, str(rank)]
    return subprocess.Popen(
        line, env=env, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _line(stream: IO[str] | None) -> str:
    try:
        return stream.readline().strip() if stream is not None else ""
    except ValueError:  # closed
        return ""


def _tell(stream: IO[str] | None, word: str) -> None:
    if stream is not None:
        stream.write(f"{word}\n")
        stream.flush()


@contextlib.contextmanager
def faulty(home: Path, fault: str, run: str) -> Iterator[Ranks]:
    """Three ranks with a fault, while this is open."""
    ranks = Ranks(home, fault, run)
    try:
        yield ranks
    finally:
        ranks.end()


def _names(finding: dict[str, Any], fault: str) -> bool:
    """Whether a finding has the kind and the rank of a fault."""
    return finding["kind"] in KINDS[fault] and finding["ranks"] == [AT]


def delay(client: HttpClient, home: Path, fault: str, run: str, timeout: float = 60.0) -> float | None:
    """Seconds from the fault until the hub names it in its live events; None when it does not, or did before."""
    with faulty(home, fault, run) as ranks:
        deadline = time.monotonic() + timeout
        for name, data in client.events("/api/live", run=run):
            if name == "findings" and any(_names(each, fault) for each in data["findings"]):
                # Named before it was there: a false alarm.
                return None if ranks.faulty_at is None else time.monotonic() - ranks.faulty_at
            if time.monotonic() > deadline:
                break
    return None


def table(found: dict[str, list[float | None]]) -> str:
    """The delays as a part of docs/diagnosis.md."""
    lines = ["| fault | named | in time | limit | median | longest |", "|---|---|---|---|---|---|"]
    for fault, delays in found.items():
        named = sorted(each for each in delays if each is not None)
        limit = LIMITS.get(fault, 3.0)
        soon = in_time(fault, delays)
        spread = f"{median(named):.1f} s | {named[-1]:.1f} s" if named else "never | never"
        total = len(delays)
        lines.append(f"| {fault} | {len(named)} of {total} | {soon} of {total} | {limit:.0f} s | {spread} |")
    return "\n".join(lines)


def in_time(fault: str, delays: list[float | None]) -> int:
    """How often a fault was named within its limit."""
    return sum(each is not None and each <= LIMITS.get(fault, 3.0) for each in delays)


def main() -> int:
    """Measure, print, and write where asked; 1 when a fault was not named in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="runs of each fault (3)")
    parser.add_argument("--only", choices=FAULTS, action="append", help="this fault only")
    parser.add_argument("--write", type=Path, help="a page to put the table into")
    args = parser.parse_args()
    found: dict[str, list[float | None]] = {fault: [] for fault in args.only or FAULTS}
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        with serving(home, lambda said: print(said, file=sys.stderr)) as address:
            client = HttpClient(address)
            for _ in range(args.times):
                for fault, delays in found.items():
                    delays.append(delay(client, home, fault, f"{fault}-{time.time_ns():x}"))
                loads.append(os.getloadavg()[0])
    text = f"{table(found)}\n\n{os.cpu_count()} cores, load {min(loads):.0f} to {max(loads):.0f}."
    print(text)
    if args.write:
        write(args.write, text, BEGIN, END)
    late = {fault: args.times - in_time(fault, delays) for fault, delays in found.items()}
    for fault, times in late.items():
        if times:
            print(f"{fault}: {times} of {args.times} not named in time", file=sys.stderr)
    return int(any(late.values()))


if __name__ == "__main__":
    sys.exit(main())
