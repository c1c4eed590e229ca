"""The Prometheus sink: the shipper serves the latest values at /metrics, for a scraper to fetch."""

import errno
import gzip
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgspec

from stepscope.dialects.prometheus.sink.latest_values import Series
from stepscope.extend.sink import convert
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Metric
from stepscope.wire.openmetrics import CONTENT_TYPES, Family, choose, expose

PATH = "/metrics"
IDLE_SECONDS = 30.0
"""Time limit for a silent scraper, in seconds."""
MAX_SCRAPERS = 16


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore scrapers that disconnect."""


class Exposition:
    """Serves until it is closed; OSError when the port is not available."""

    def __init__(self, host: str, port: int, families: Callable[[], list[Family]]) -> None:
        room = threading.BoundedSemaphore(MAX_SCRAPERS)

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
                """Log nothing: the shipper's log is for errors."""

        self._server = _Server((host, port), Scrape)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


DEFAULT_PORT = 9464
"""The port OpenTelemetry gives to Prometheus exporters."""


class Prometheus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address, naming and limits."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    namespace: str = "stepscope"
    max_series: int = 10_000
    stale: float = 300.0

    remote: ClassVar[bool] = True

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Prometheus":
        """Read options; host and port may also be in OTEL_EXPORTER_PROMETHEUS_HOST and _PORT."""
        variables = {"host": env.get("OTEL_EXPORTER_PROMETHEUS_HOST"), "port": env.get("OTEL_EXPORTER_PROMETHEUS_PORT")}
        made = convert("prometheus", {**{key: value for key, value in variables.items() if value}, **options}, cls)
        if not 0 <= made.port < 65536:
            raise ConfigError(
                f"sinks: prometheus: port {made.port} is not valid; use 1 to 65535, or 0 for any free port"
            )
        if not made.host:
            raise ConfigError("sinks: prometheus: host is empty; use 127.0.0.1, or 0.0.0.0 for all addresses")
        if made.max_series < 1 or not made.stale > 0:
            raise ConfigError("sinks: prometheus: max_series and stale must be above 0")
        return made

    @property
    def place(self) -> str:
        """The address that scrapers fetch."""
        return f"http://{self.host}:{self.port}/metrics"

    def open(self) -> "PrometheusSink":
        """Make the sink."""
        return PrometheusSink(self)


class PrometheusSink:
    """Keeps the latest values and serves them from the first write to `close`."""

    timeout = 5.0
    divisible = True

    def __init__(self, config: Prometheus, *, now: Callable[[], float] = time.time) -> None:
        self._config, self._now = config, now
        self._series = Series(namespace=config.namespace, most=config.max_series, stale_seconds=config.stale)
        self._exposition: Exposition | None = None
        self._shown_on = config.port
        """The last port it was served on."""
        self._refused: Counter[str] = Counter()

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Take the metrics; other kinds and stale records are skipped."""
        self._show()
        now = self._now()
        refused: Counter[str] = Counter()
        for batch in batches:
            for record in batch.records:
                if isinstance(record, Metric):
                    refused.update(self._series.take(batch.writer, record, now))
        self._refused.update(refused)
        return dict(refused)

    def close(self) -> None:
        """Stop serving."""
        if self._exposition is not None:
            self._exposition.close()
            self._exposition = None

    @property
    def place(self) -> str:
        """The address that scrapers fetch, with the actual port if any was allowed."""
        return msgspec.structs.replace(self._config, port=self._shown_on).place

    @property
    def port(self) -> int:
        """The port it is served on; 0 before the first write."""
        return self._exposition.port if self._exposition is not None else 0

    def _show(self) -> None:
        if self._exposition is not None:
            return
        host, port = self._config.host, self._config.port
        try:
            self._exposition = Exposition(host, port, self._families)
            self._shown_on = self._exposition.port
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Retry(f"port {port} is in use by another process: set another `port`") from error
            raise Retry(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error

    def _families(self) -> list[Family]:
        dropped = Family(
            "stepscope_values_refused",
            "counter",
            "Values that could not be shown, by reason.",
            [({"reason": reason}, count) for reason, count in sorted(self._refused.copy().items())],
        )
        clashes = Family(
            "stepscope_label_clashes",
            "counter",
            "Attributes that share a label with another attribute, or were renamed for one of ours.",
            [({}, self._series.clashes)] if self._series.clashes else [],
        )
        return [*self._series.families(self._now()), *(each for each in (dropped, clashes) if each.series)]
