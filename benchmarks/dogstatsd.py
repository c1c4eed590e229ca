"""DogStatsD into a hub: lines sent, values stored, CPU time and memory of the hub. `--transport udp --rate 100000`."""

from __future__ import annotations

import argparse
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a script: its folder is on the path, its package is not
    sys.path[0] = str(ROOT)

from benchmarks.hub_process import HubProcess  # noqa: E402
from benchmarks.spawn import scratch  # noqa: E402

TAGS = "run_id:bench,user_id:u1,env:test,model:llama"
TYPES = ("g", "g", "g", "g", "g", "g", "d", "ms", "h", "c")
"""Of ten metrics: what a trainer sends."""


def lines(shape: str, count: int) -> Iterator[str]:
    """Lines of ten metrics with a step before each ten, of one gauge alone, or of tags that never repeat."""
    for number in range(count):
        at = number % 10
        if shape == "one":
            yield f"bench.loss:{number * 0.37:.6f}|g|#{TAGS}"
        elif shape == "distinct":
            yield f"bench.loss:{number * 0.37:.6f}|g|#{TAGS},request:{number}"
        elif number % 100 == 0:
            yield f"bench.train.step:{number // 100}|g|#{TAGS}"
        else:
            yield f"bench.metric_{at}:{number * 0.37:.6f}|{TYPES[at]}|#{TAGS}"


def datagrams(shape: str, count: int, each: int) -> list[bytes]:
    """The lines, so many in each datagram."""
    found = list(lines(shape, count))
    return ["\n".join(found[at : at + each]).encode() for at in range(0, count, each)]


def send(address: str, packets: list[bytes], rate: float) -> float:
    """Send datagrams at a rate, 0 for as fast as it goes; return the seconds it took."""
    kind, _, place = address.partition("://")
    family = socket.AF_INET if kind == "udp" else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM if kind == "unixstream" else socket.SOCK_DGRAM) as made:
        host, _, port = place.rpartition(":")
        made.connect((host, int(port)) if kind == "udp" else place)
        began = time.monotonic()
        for number, packet in enumerate(packets):
            made.sendall(struct.pack("<I", len(packet)) + packet if kind == "unixstream" else packet)
            if rate and number % 16 == 0 and (ahead := began + number / rate - time.monotonic()) > 0:
                time.sleep(ahead)
        return time.monotonic() - began


def main(argv: list[str] | None = None) -> int:
    """Send, wait until the hub is idle, and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", choices=("udp", "unix", "unixstream"), default="unixstream")
    parser.add_argument("--shape", choices=("mixed", "one", "distinct"), default="mixed")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--each", type=int, default=20, help="lines per datagram (20)")
    parser.add_argument("--rate", type=float, default=0.0, help="lines per second; 0 for as fast as it goes")
    args = parser.parse_args(argv)
    packets = datagrams(args.shape, args.lines, args.each)
    with scratch() as folder:
        sockets = ("--dogstatsd-socket", f"{args.transport}://{folder}/dogstatsd.sock")
        hub = HubProcess(folder, *(sockets if args.transport != "udp" else ("--dogstatsd", "127.0.0.1:0")))
        try:
            hub.wait_until_idle(20)
            before = hub.cpu_s()
            address = re.search(r"DogStatsD on ([^\s)]+)", hub.said)
            assert address is not None, hub.said
            seconds = send(address[1], packets, args.rate / args.each)
            hub.wait_until_idle(60)
            _print(hub, args.lines, seconds, hub.cpu_s() - before)
            hub.stop()
        finally:
            hub.close()
    return 0


def _print(hub: HubProcess, count: int, seconds: float, cpu: float) -> None:
    print(f"sent      {count:>12,} lines in {seconds:.1f} s: {count / seconds:,.0f}/s")
    print(f"stored    {hub.sql('SELECT count() FROM metrics'):>12,} values")
    print(f"hub CPU   {cpu:>12.1f} s with journal and store: {count / cpu:,.0f} lines per second of one core")
    print(f"memory    {hub.own_bytes() / 1e6:>12.0f} MB at the end")
    for outcome, found in hub.get("/api/health")["receivers"].get("dogstatsd", {}).items():
        print(f"{outcome:<9} {found}")


if __name__ == "__main__":
    sys.exit(main())
