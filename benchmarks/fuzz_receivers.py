"""Fuzz a receiver of a real hub: no answer of 500 or more, bounded memory. `datadog --count 1000000 [--first N]`."""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a script: its folder is on the path, its package is not
    sys.path[0] = str(ROOT)

from benchmarks.fuzz_requests import DIALECTS, Sent, datagram, request  # noqa: E402
from benchmarks.hub_process import HubProcess  # noqa: E402
from benchmarks.spawn import scratch  # noqa: E402

FAILED = 500
MOST_BYTES = 1_500_000_000
"""Of the hub's own memory; more fails the run."""
THREADS = 12
"""Connections at once: what is accepted together is synced together."""


class Outcome:
    """What was answered, by status, and the requests that failed."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.highest = 0
        self.lock = threading.Lock()


def send_http(hub: HubProcess, dialect: str, numbers: range, outcome: Outcome, until: float) -> None:
    """Send the requests of some numbers over one connection after the other."""
    connection = Connection(hub.port)
    for number in numbers:
        if time.monotonic() > until:
            break
        made = request(dialect, number)
        try:
            status, said = connection.ask(made)
        except (OSError, ValueError) as error:  # a refusal may close the connection
            status, said = 0, repr(error).encode()
            connection.close()
        with outcome.lock:
            outcome.statuses[status] += 1
            if status >= FAILED:
                outcome.failures.append(f"{number}: {made.method} {made.path[:80]} {status} {said[:200]!r}")
    connection.close()


class Connection:
    """A keep-alive connection that costs little to use; it is opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, sent: Sent) -> tuple[int, bytes]:
        """Send a request and return the status and body of the answer."""
        lines = [f"{sent.method} {sent.path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(sent.body)}"]
        lines += [f"{name}: {value}" for name, value in sent.headers.items()]
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        self._socket.sendall("\r\n".join([*lines, "\r\n"]).encode() + sent.body)
        data = self._read(b"", lambda found: b"\r\n\r\n" in found)
        head, _, rest = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields.get(b"content-length", b"0"))
        body = self._read(rest, lambda found: len(found) >= size)
        if fields.get(b"connection") == b"close" or b"transfer-encoding" in fields:
            self.close()
        return int(head.split(b" ", 2)[1]), body

    def _read(self, data: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
        assert self._socket is not None
        while not is_whole(data):
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionError("closed by the hub")
            data += more
        return data

    def close(self) -> None:
        """Close it until it is needed again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def send_datagrams(place: str, numbers: range, outcome: Outcome, until: float) -> None:
    """Send datagrams as frames of a stream, which loses none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(place)
        for number in numbers:
            if time.monotonic() > until:
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
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this long")
    args = parser.parse_args(argv)
    outcome = Outcome()
    with scratch() as folder:
        place = str(folder / "dogstatsd.sock")
        hub = HubProcess(folder, "--dogstatsd-socket", f"unixstream://{place}")
        try:
            seconds = _run(hub, place, args, outcome)
            rejected = hub.get("/api/health")["receivers"]
        finally:
            hub.close()
    return _print(args, outcome, seconds, rejected)


def _run(hub: HubProcess, place: str, args: argparse.Namespace, outcome: Outcome) -> float:
    began = time.monotonic()
    until = began + args.seconds
    numbers = range(args.first, args.first + args.count)
    if args.receiver == "dogstatsd":
        threads = [threading.Thread(target=send_datagrams, args=(place, numbers, outcome, until))]
    else:
        parts = [numbers[at::THREADS] for at in range(THREADS)]
        threads = [
            threading.Thread(target=send_http, args=(hub, args.receiver, part, outcome, until)) for part in parts
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)
            outcome.highest = max(outcome.highest, hub.own_bytes())
    hub.wait_until_idle(30)
    return time.monotonic() - began


def _print(args: argparse.Namespace, outcome: Outcome, seconds: float, receivers: dict[str, object]) -> int:
    total = sum(outcome.statuses.values())
    print(f"{args.receiver}: {total:,} requests from number {args.first:,} in {seconds:.0f} s")
    print(f"  answers {dict(sorted(outcome.statuses.items()))}, memory at most {outcome.highest / 1e6:.0f} MB")
    for failure in outcome.failures[:10]:
        print(f"  FAILED {failure}")
    failed = "a failure of the hub" in str(receivers)
    if failed:
        print(f"  FAILED {receivers}")
    return int(bool(outcome.failures) or failed or outcome.highest > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
