"""A real HTTP server on loopback that answers as the test sets it and keeps what it accepted."""

import contextlib
import email.utils
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@dataclass
class Reply:
    """One answer; `cut` sends half of the body, `hang` nothing until the server ends, `drip` a byte now and then."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    hang: bool = False
    drip: bool = False
    taken: bool | None = None
    """Whether the request counts as accepted; by default when the status is 2xx and all of it was sent."""


@dataclass
class Received:
    """One accepted request."""

    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Answers with the next of `replies`, else `success`; `received` are the accepted requests, `requests` all."""

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.replies: list[Reply] = []
        self.always: Reply | None = None
        self.success = Reply()
        self.decide: Callable[[Received], Reply] | None = None
        self.received: list[Received] = []
        self.requests = 0
        self.connections = 0
        self.open: list[socket.socket] = []
        self.ended = threading.Event()
        server = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1
                server.open.append(self.connection)

            def do_POST(self) -> None:
                server.answer(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Answering)
        self._http.daemon_threads = True
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Read a request and answer it."""
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        got = Received(request.path, {key.lower(): value for key, value in request.headers.items()}, body)
        self.requests += 1
        reply = self.always or (self.replies.pop(0) if self.replies else self.success)
        if self.decide is not None:
            reply = self.decide(got)
        taken = 200 <= reply.status < 300 and not (reply.cut or reply.hang or reply.drip)
        if taken if reply.taken is None else reply.taken:
            self.received.append(got)
        if reply.hang:
            self.ended.wait(300)
            return
        request.send_response(reply.status)
        for key, value in reply.headers.items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(reply.body) + (100 if reply.cut else 0)))
        if reply.drip:
            self._drip(request)
            return
        request.end_headers()
        request.wfile.write(reply.body)
        if reply.cut:
            request.close_connection = True

    def _drip(self, request: BaseHTTPRequestHandler) -> None:
        request.flush_headers()
        while not self.ended.wait(0.02):
            try:
                request.wfile.write(b"x")
            except OSError:
                return

    def messages(self, path: str) -> list[Any]:
        """The accepted requests of a path, read by OpenTelemetry's own decoder."""
        found = []
        for got in self.received:
            if got.path == path:
                body = gzip.decompress(got.body) if got.headers.get("content-encoding") == "gzip" else got.body
                found.append(REQUESTS[path].FromString(body))
        return found

    def steps(self) -> list[int]:
        """The steps of all metric points that were accepted."""
        return [step for message in self.messages("/v1/metrics") for step in metric_steps(message)]

    def stop(self) -> None:
        """End it, and every answer under way."""
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        for each in self.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def metric_steps(message: Any) -> list[int]:
    """The `train.step` of each gauge point in a request."""
    return [
        attribute.value.int_value
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
        for attribute in point.attributes
        if attribute.key == "train.step"
    ]


def span_names(message: Any) -> list[str]:
    """The names of the spans of a request."""
    return [span.name for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans]


def http_date(seconds: float) -> str:
    """The date some seconds from now, as Retry-After has it."""
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server()
    try:
        yield server
    finally:
        server.stop()
