"""A server that speaks the HTTP intake of Datadog: it checks shapes and limits, with answers set by the test."""

import json
import zlib
from typing import Any

import msgspec

from tests.sinks.servers import Received, Reply, Server

KEY = "k" * 32
NOW = 1_700_000_001.0
COMPRESSED = ("/api/v2/series", "/api/v1/distribution_points", "/api/v2/logs")
ANSWERS = {"/api/v2/series": b'{"errors": []}', "/api/v2/logs": b"{}"}


class Resource(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str


class Point(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: int
    value: float


class Series(msgspec.Struct, forbid_unknown_fields=True):
    metric: str
    type: int
    points: list[Point]
    tags: list[str] = []
    resources: list[Resource] = []


class SeriesBody(msgspec.Struct, forbid_unknown_fields=True):
    series: list[Series]


class Distribution(msgspec.Struct, forbid_unknown_fields=True):
    metric: str
    points: list[tuple[int, list[float]]]
    tags: list[str] = []
    host: str = ""


class DistributionBody(msgspec.Struct, forbid_unknown_fields=True):
    series: list[Distribution]


class Event(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    text: str
    alert_type: str
    date_happened: int
    priority: str
    tags: list[str] = []
    host: str = ""
    aggregation_key: str = ""
    source_type_name: str = ""


class CheckRun(msgspec.Struct, forbid_unknown_fields=True):
    check: str
    host_name: str
    status: int
    tags: list[str]
    message: str
    timestamp: int


class LogItem(msgspec.Struct):
    message: str
    ddsource: str
    ddtags: str
    hostname: str
    service: str
    status: str
    timestamp: int


SHAPES: dict[str, Any] = {
    "/api/v2/series": SeriesBody,
    "/api/v1/distribution_points": DistributionBody,
    "/api/v1/events": Event,
    "/api/v1/check_run": list[CheckRun],
    "/api/v2/logs": list[LogItem],
}


class IntakePeer(Server):
    """Answers 202 to what is right, 403 to a wrong key, 400 to a wrong shape, 413 to what is too large."""

    def __init__(self) -> None:
        super().__init__()
        self.most_raw, self.most_compressed = 5_000_000, 500_000
        self.instead: list[Reply] = []
        """The next answers, whatever the requests are."""
        self.told: list[tuple[str, Any]] = []
        self.decide = self._decide

    def busy(self, seconds: float) -> None:
        """Say that there are too many requests."""
        self.instead.append(Reply(429, {"Retry-After": str(int(seconds))}, b'{"errors": ["Too many requests"]}'))

    def refuse(self) -> None:
        """Say that the body is bad."""
        self.instead.append(Reply(400, {}, b'{"errors": ["Payload is not in the expected format"]}'))

    def found(self, path: str) -> list[Any]:
        """The accepted bodies of a path, decoded."""
        return [body for each, body in self.told if each == path]

    def steps(self) -> list[int]:
        """What the gauge of the step said."""
        return [
            int(point.value)
            for body in self.found("/api/v2/series")
            for series in body.series
            if series.metric.endswith("train.step")
            for point in series.points
        ]

    def _decide(self, got: Received) -> Reply:
        if self.instead:
            return self.instead.pop(0)
        if got.headers.get("dd-api-key") != KEY:
            return Reply(403, {}, b'{"errors": ["Forbidden"]}')
        if got.headers.get("content-type") != "application/json" or got.path not in SHAPES:
            return Reply(404, {}, b"")
        raw = got.body
        if got.headers.get("content-encoding"):
            if got.headers["content-encoding"] != "deflate" or got.path not in COMPRESSED:
                return Reply(400, {}, b'{"errors": ["encoding"]}')
            raw = zlib.decompress(raw)
        if len(raw) > self.most_raw or len(got.body) > self.most_compressed:
            return Reply(413, {}, b'{"errors": ["Payload too big"]}')
        return self._judge(got.path, raw)

    def _judge(self, path: str, raw: bytes) -> Reply:
        try:
            body = msgspec.json.decode(raw, type=SHAPES[path])
            self._limits(path, body)
        except (msgspec.DecodeError, AssertionError) as error:
            return Reply(400, {}, json.dumps({"errors": [str(error)]}).encode())
        self.told.append((path, body))
        return Reply(202, {}, ANSWERS.get(path, b'{"status": "ok"}'))

    def _limits(self, path: str, body: Any) -> None:
        """What is documented: ages, counts, lengths."""
        if path == "/api/v2/series":
            for series in body.series:
                assert series.type in (1, 3)
                assert all(NOW - 3600 <= point.timestamp <= NOW + 600 for point in series.points)
                assert len(series.metric) <= 200
                assert all(len(tag) <= 200 for tag in series.tags)
        elif path == "/api/v1/events":
            assert len(body.text) <= 4000
            assert len(body.aggregation_key) <= 100
            assert body.alert_type in ("error", "warning", "info", "success")
            assert NOW - body.date_happened <= 18 * 3600
        elif path == "/api/v1/check_run":
            assert all(each.status in (0, 1, 2, 3) and len(each.message) <= 500 for each in body)
        elif path == "/api/v2/logs":
            assert len(body) <= 1000
            assert all(len(each.message.encode()) <= 1_000_000 for each in body)
