"""Records of a run as a hub tells them, for runs whose journals are elsewhere: the last ones, then those that come."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.hub.client import RUNS, HttpClient, open_http_client, resolve_run
from stepscope.model.records import KINDS, Alert, Event, Log, Metric, Record, Span, kind
from stepscope.model.writer import Writer

Row = tuple[Writer, Record]
_STATUSES = {"ok": 1, "error": 2}
_MOST = 1000


def watch(home: Path, text: str, only_kind: str | None) -> "Watcher | None":
    """Watch the run that is meant; None when no hub has the home open."""
    client = open_http_client(home)
    return None if client is None else Watcher(client, resolve_run(client, home, text), only_kind)


class Watcher:
    """One run, watched over HTTP. `read` waits for news."""

    def __init__(self, client: HttpClient, run: str, only_kind: str | None = None) -> None:
        self._client, self._run, self._kind = client, run, only_kind
        self._events = client.events("/api/live", run=run, kind=only_kind)
        next(self._events)  # from here on nothing is missed
        self._shown: set[tuple[object, ...]] = set()

    def last(self, count: int) -> list[Row]:
        """The last records there are, by time: spans, logs, events, alerts, and the newest value of each metric."""
        if not count:
            return []
        rows = sorted(self._stored(min(count, _MOST)), key=lambda row: _written(row[1]))[-count:]
        self._shown = {_identity(row) for row in rows}
        return rows

    def read(self) -> list[Row]:
        """The records that come next, by time; none when the hub has nothing to tell but that it lives."""
        name, data = next(self._events, ("end", {}))
        if name == "end":
            self._events = self._client.events("/api/live", run=self._run, kind=self._kind)
            return []
        rows = [row for row in _told(data) if _identity(row) not in self._shown] if name == "records" else []
        return sorted(rows, key=lambda row: _written(row[1]))

    def _stored(self, count: int) -> Iterator[Row]:
        wanted = (self._kind,) if self._kind else KINDS
        if "metric" in wanted:
            yield from _values(self._run, self._client.get(f"{RUNS}/{{run}}/keys", run=self._run)["keys"])
        found: list[dict[str, Any]] = []
        if "span" in wanted:
            found += self._client.get("/api/spans", run=self._run, limit=count)["spans"]
        if "alert" in wanted:
            found += self._client.get("/api/alerts", run=self._run, limit=count)["alerts"]
        for each in ("log", "event"):
            if each in wanted:
                found += self._client.get("/api/logs", run=self._run, kind=each, limit=count)["logs"]
        yield from ((_writer(each), _record(each)) for each in found)


def _values(run: str, keys: list[dict[str, Any]]) -> Iterator[Row]:
    """The newest value of each key, those of one moment together."""
    moments: dict[tuple[int | None, float], dict[str, Any]] = {}
    for each in keys:
        if each["last"] is not None:
            moments.setdefault((each["last_step"], each["last_time"] or 0.0), {})[each["key"]] = float(each["last"])
    for (step, time), values in moments.items():
        yield _writer({"run": run}), Metric(_ns(time), step, None, None, values)


def _told(data: dict[str, Any]) -> Iterator[Row]:
    """The records of one event."""
    writer = _writer(data)
    moments: dict[tuple[int | None, float], dict[str, Any]] = {}
    for key, columns in data.get("points", {}).items():
        for step, time, value in zip(columns["step"], columns["time"], columns["value"], strict=True):
            if value is not None:
                moments.setdefault((step, time or 0.0), {})[key] = float(value)
    for (step, time), values in moments.items():
        yield writer, Metric(_ns(time), step, None, None, values)
    for name in ("spans", "logs", "events", "alerts"):
        yield from ((writer, _record(each)) for each in data.get(name, ()))


def _writer(data: dict[str, Any]) -> Writer:
    return Writer(
        id=data.get("writer", ""),
        run=data["run"],
        project="",
        rank=data.get("rank", 0),
        attempt=data.get("attempt", 1),
    )


def _record(data: dict[str, Any]) -> Record:
    if "duration_ms" in data:
        lasted = None if data["duration_ms"] is None else round(data["duration_ms"] * 1e6)
        return Span(
            time=_ns(data["start"]),
            duration=lasted,
            step=data["step"],
            axis=data["axis"],
            trace_id=bytes.fromhex(data["trace_id"]),
            span_id=bytes.fromhex(data["span_id"]),
            parent_id=_bytes(data["parent_id"]),
            name=data["name"],
            status=_STATUSES.get(data["status"], 0),
            message=data["message"],
            attrs=data["attrs"],
            scope=data["scope"],
        )
    front = (_ns(data["time"]), data["step"], data["axis"], _bytes(data["trace_id"]), _bytes(data["span_id"]))
    level = data["severity_number"]
    if data["kind"] == "log":
        return Log(*front, level, data["body"], data["attrs"], data.get("scope", ""))
    if data["kind"] == "event":
        return Event(*front, level, data["name"], data["attrs"], data["body"])
    return Alert(*front, level, data["name"], data["body"] or "", data["attrs"])


def _bytes(text: str | None) -> bytes | None:
    return bytes.fromhex(text) if text else None


def _ns(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1e9)


def _written(record: Record) -> int:
    return record.time + (record.duration or 0) if isinstance(record, Span) else record.time


def _identity(row: Row) -> tuple[object, ...]:
    record = row[1]
    return kind(record), record.step, record.time, getattr(record, "name", ""), getattr(record, "span_id", b"")
