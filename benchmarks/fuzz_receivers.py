"""Fuzz a receiver of a hub: every request is answered below 500, in bounded memory. `datadog --count 1000000`."""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a script: its folder is on the path, its package is not
    sys.path[0] = str(ROOT)

from benchmarks.fuzz_application import Outcome, open_application  # noqa: E402
from benchmarks.fuzz_requests import DIALECTS, datagram  # noqa: E402
from benchmarks.hub_process import HubProcess, own_bytes  # noqa: E402
from benchmarks.spawn import scratch  # noqa: E402

MAX_BYTES = 1_500_000_000
"""Of the hub's own memory; more fails the run."""


class Report:
    """Prints how far it is, and follows the memory of the hub's process."""

    def __init__(self, args: argparse.Namespace, outcome: Outcome) -> None:
        self._args, self._outcome = args, outcome
        self._began, self._used = time.monotonic(), time.process_time()
        self.first = self.highest = self._told = 0

    def is_over(self) -> bool:
        """Return whether the time is up."""
        return time.monotonic() > self._began + self._args.seconds

    def measure(self, size: int) -> None:
        """Take the memory of the hub."""
        self.first, self.highest = self.first or size, max(self.highest, size)

    def print(self) -> None:
        """Print the counts so far, and the requests that failed since the last time."""
        self.measure(own_bytes())
        seconds, used = time.monotonic() - self._began, time.process_time() - self._used
        count, statuses = self._outcome.count, dict(sorted(self._outcome.statuses.items()))
        print(
            f"{self._args.receiver}: {count:,} requests from number {self._args.first:,} in {seconds:.0f} s, "
            f"{used:.0f} s of CPU; answers {statuses}; memory {self.first / 1e6:.0f} MB at first, "
            f"at most {self.highest / 1e6:.0f} MB; {len(self._outcome.failures)} failures"
        )
        for failure in self._outcome.failures[self._told :][:10]:
            print(f"  FAILED {failure}")
        self._told = len(self._outcome.failures)
        sys.stdout.flush()


def send_datagrams(place: str, numbers: range, outcome: Outcome, report: Report) -> None:
    """Send datagrams as frames of a stream, which loses none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(place)
        for number in numbers:
            if report.is_over():
                break
            data = datagram(number)
            made.sendall(struct.pack("<I", len(data)) + data)
            outcome.statuses[202] += 1


def main(argv: list[str] | None = None) -> int:
    """Send the requests and return 0 when the hub failed at none and stayed within its memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("receiver", choices=(*DIALECTS, "dogstatsd"))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first request, to go on in parts")
    parser.add_argument("--seconds", type=float, default=1e6, help="stop after this long")
    args = parser.parse_args(argv)
    outcome, numbers = Outcome(), range(args.first, args.first + args.count)
    report = Report(args, outcome)
    with scratch() as folder:
        fuzz = _fuzz_dogstatsd if args.receiver == "dogstatsd" else _fuzz_http
        receivers = fuzz(folder, args.receiver, numbers, outcome, report)
    report.print()
    failed = "a failure of the hub" in receivers
    if failed:
        print(f"  FAILED {receivers}")
    return int(bool(outcome.failures) or failed or report.highest > MAX_BYTES)


def _fuzz_http(folder: Path, dialect: str, numbers: range, outcome: Outcome, report: Report) -> str:
    with open_application(folder) as application:
        report.measure(own_bytes())
        asyncio.run(application.fuzz(dialect, numbers, outcome, report.is_over, report.print))
        return str(application.hub.health()["receivers"])


def _fuzz_dogstatsd(folder: Path, dialect: str, numbers: range, outcome: Outcome, report: Report) -> str:
    place = str(folder / "dogstatsd.sock")
    hub = HubProcess(folder, "--dogstatsd-socket", f"unixstream://{place}")
    try:
        report.measure(hub.own_bytes())
        sending = threading.Thread(target=send_datagrams, args=(place, numbers, outcome, report))
        sending.start()
        while sending.is_alive():
            sending.join(0.5)
            report.measure(hub.own_bytes())
        hub.wait_until_idle(30)
        return str(hub.get("/api/health")["receivers"])
    finally:
        hub.close()


if __name__ == "__main__":
    sys.exit(main())
