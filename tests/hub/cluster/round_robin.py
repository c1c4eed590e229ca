"""A load balancer that sends each request to the next hub, also those of one connection."""

import contextlib
import http.client
import itertools
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.hub.conftest import RunningHub


class RoundRobin(ThreadingHTTPServer):
    """Listens on loopback; `asked` counts the requests to each hub."""

    daemon_threads = True

    def __init__(self, hubs: Sequence[RunningHub]) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self._hubs, self._turns = hubs, itertools.count()
        self.asked = [0] * len(hubs)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def next_port(self) -> int:
        """The port of the hub whose turn it is."""
        index = next(self._turns) % len(self._hubs)
        self.asked[index] += 1
        return self._hubs[index].port


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        assert isinstance(self.server, RoundRobin)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.next_port(), timeout=300)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if self.command != "HEAD" else b"")

    do_GET = do_POST = do_PUT = do_HEAD = do_PATCH = do_DELETE = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def balanced(hubs: Sequence[RunningHub]) -> Iterator[RoundRobin]:
    """Run a load balancer in front of hubs."""
    with RoundRobin(hubs) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()
