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
from typing import IO

from benchmarks.zoo.live_rank import AT, FAULTS
from stepscope.cli.served import serving
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


def delay(client: HttpClient, home: Path, fault: str, run: str, timeout: float = 60.0) -> float | None:
    """Seconds from the fault until the hub tells of it in its live events; None when it does not in time."""
    with faulty(home, fault, run) as ranks:
        deadline = time.monotonic() + timeout
        for name, data in client.events("/api/live", run=run):
            if name == "findings" and any(each["kind"] in KINDS[fault] for each in data["findings"]):
                return time.monotonic() - (ranks.faulty_at or time.monotonic())
            if time.monotonic() > deadline:
                break
    return None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="runs of each fault (3)")
    parser.add_argument("--only", choices=FAULTS, action="append", help="this fault only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with serving(home, lambda said: print(said, file=sys.stderr)) as address:
            client = HttpClient(address)
            for fault in args.only or FAULTS:
                found = [delay(client, home, fault, f"{fault}-{time.time_ns():x}") for _ in range(args.times)]
                named = [each for each in found if each is not None]
                told = " ".join(f"{each:.1f}" for each in sorted(named))
                print(f"{fault:<10} {len(named)} of {len(found)} named, after {told or 'never'} s", flush=True)


if __name__ == "__main__":
    main()
