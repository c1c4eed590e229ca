"""A small HTTP server that shows /metrics to scrapers, and nothing else."""

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stepscope.wire.openmetrics import CONTENT_TYPES, Family, choose, expose

PATH = "/metrics"
IDLE_SECONDS = 30.0
"""A scraper that says nothing for so long is let go."""
MOST_SCRAPERS = 16


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that hangs up is no news."""


class Exposition:
    """Serves until it is closed; OSError when the port cannot be had."""

    def __init__(self, host: str, port: int, families: Callable[[], list[Family]]) -> None:
        room = threading.BoundedSemaphore(MOST_SCRAPERS)

        class Scrape(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = IDLE_SECONDS

            def do_GET(self) -> None:
                if not room.acquire(blocking=False):
                    self._answer(503, b"too many scrapers\n", "text/plain")
                    return
                try:
                    self._show()
                finally:
                    room.release()

            do_HEAD = do_GET

            def _show(self) -> None:
                if self.path.partition("?")[0] != PATH:
                    self._answer(404, f"see {PATH}\n".encode(), "text/plain")
                    return
                form = choose(self.headers.get("accept", ""))
                self._answer(200, expose(families(), form), CONTENT_TYPES[form])

            def _answer(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                if "gzip" in self.headers.get("accept-encoding", ""):
                    body = gzip.compress(body, 1)
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Say nothing: the shipper's log is for trouble."""

        self._server = _Server((host, port), Scrape)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)
