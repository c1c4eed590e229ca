"""Clients with a token beside a thousand unfinished requests without one: how many are answered, and how soon."""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a script: its folder is on the path, its package is not
    sys.path[0] = str(ROOT)

from benchmarks import report  # noqa: E402
from benchmarks.hub_process import HubProcess  # noqa: E402
from benchmarks.spawn import scratch  # noqa: E402

PATHS = ("/sdk/otel/v1/traces", "/api/session", "/v1/logs")
ASKED = 25


def main(argv: list[str] | None = None) -> int:
    """Attack each path, print a table, and return 0 when every client with a token was answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    args = parser.parse_args(argv)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    table = [["unfinished bodies at", "connections", "answered 200", "slowest ms", "median ms"]]
    whole = True
    with scratch() as folder:
        hub = HubProcess(folder)
        try:
            token = _token(hub)
            for path in PATHS:
                held, times = _attack(hub.port, path, args.connections, token)
                whole &= len(times) == ASKED
                times.sort()
                shown = [f"{times[-1] * 1e3:.0f}", f"{times[len(times) // 2] * 1e3:.0f}"] if times else ["-", "-"]
                table.append([path, f"{held:,}", f"{len(times)} of {ASKED}", *shown])
        finally:
            hub.close()
    print(report.machine())
    print(report.as_text(table))
    return 0 if whole else 1


def _token(hub: HubProcess) -> str:
    """Make a token, and wait until the hub asks for one."""
    from stepscope.hub.security.tokens import Tokens

    token = Tokens(hub.home / "hub" / "tokens.json").create(["ingest"])[1]
    while _ask(hub.port, "") != 401:
        time.sleep(0.1)
    return token


def _attack(port: int, path: str, connections: int, token: str) -> tuple[int, list[float]]:
    """Hold connections from one address, each with a body that does not end, and ask from another one."""
    start = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n"
    ).encode() + b"{" * 100
    held: list[socket.socket] = []
    times: list[float] = []
    try:
        for number in range(ASKED):
            while len(held) < connections * (number + 1) // ASKED + connections * (number < 1):
                try:
                    held.append(socket.create_connection(("127.0.0.1", port), 60))
                    held[-1].sendall(start)
                except OSError:
                    break
            begun = time.monotonic()
            if _ask(port, token) == 200:
                times.append(time.monotonic() - begun)
        return len(held), times
    finally:
        for connection in held:
            connection.close()


def _ask(port: int, token: str) -> int:
    """The status of one request from an address of its own; 0 without an answer."""
    authorization = f"authorization: Bearer {token}\r\n" if token else ""
    request = (
        f"POST /v1/logs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{authorization}"
        "content-length: 2\r\nconnection: close\r\n\r\n{}"
    )
    try:
        with socket.create_connection(("127.0.0.1", port), 60, source_address=("127.0.0.2", 0)) as connection:
            connection.sendall(request.encode())
            return int(connection.recv(4096).split(b" ")[1])
    except (OSError, IndexError, ValueError):
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
