"""Servers in processes of their own for measurements of delivery: one that takes everything, and ones that do not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.spawn import end_group, environment

ANSWER = b'{"safe": [], "written": 0, "rejected": {}}'
"""What a hub says; an OTLP server may say anything after 200."""
STATUSES = {
    "takes": (200, {}),
    "429": (429, {"Retry-After": "60"}),
    "500": (500, {}),
    "503": (503, {}),
    "413": (413, {}),
    "302": (302, {"Location": "/login"}),
}
FAULTS = ("refused", "blackhole", "silent", "slow", "429", "500", "503", "413", "302", "tls hang", "dns")


def main() -> None:
    """Serve as the first argument says; print the address."""
    kind = sys.argv[1]
    with contextlib.ExitStack() as undo:
        print(_http(kind) if kind in STATUSES or kind == "slow" else _nobody(kind, undo), flush=True)
        time.sleep(3600)


def _http(kind: str) -> str:
    status, headers = STATUSES.get(kind, STATUSES["takes"])
    pause = 0.2 if kind == "slow" else 0.0

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            left = int(self.headers.get("content-length", 0))
            while left and (data := self.rfile.read(min(left, 1 << 20))):
                left -= len(data)
            time.sleep(pause)
            body = b"" if self.path.startswith("/v1/") and "stepscope" not in self.path else ANSWER
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    class Serving(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that left without a word is no news."""

    server = Serving(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def _nobody(kind: str, undo: contextlib.ExitStack) -> str:
    if kind == "dns":
        return "http://no-such-host.invalid:4318"
    server = socket.create_server(("127.0.0.1", 0), backlog=0 if kind == "blackhole" else 64)
    port = server.getsockname()[1]
    if kind == "refused":
        server.close()
        return f"http://127.0.0.1:{port}"
    undo.enter_context(server)
    for _ in range(4 if kind == "blackhole" else 0):  # its queue is full now, so that packets are swallowed
        client = undo.enter_context(socket.socket())
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(("127.0.0.1", port))
    return f"{'https' if kind == 'tls hang' else 'http'}://127.0.0.1:{port}"


@contextlib.contextmanager
def destination(kind: str, folder: Path) -> Iterator[str]:
    """The address of a destination for the length of a block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.destinations", kind],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdout.close()
        end_group(process)


def end_shipper(home: Path) -> None:
    """Kill the shipper at work in a home; it leads a session of its own, and would try for a day."""
    for lock in (home / "shipping").glob("*.lock"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(lock.read_text()), signal.SIGKILL)


if __name__ == "__main__":
    main()
