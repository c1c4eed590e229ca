"""`stepscope tail`: print the last records of a run, and with `--follow` new ones as they come."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, integer
from stepscope.cli.record_lines import json_line, line
from stepscope.hub.client import RUNS, HttpClient, expand_latest, open_http_client, resolve_run
from stepscope.journal import layout
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.journal.segments import Position, RunReader, Tail
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import KINDS, Alert, Event, Log, Metric, Record, Span, kind

POLL_SECONDS = 0.2

Row = tuple[Writer, Record]


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "tail", "print the last records of a run", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    made.add_argument("-n", type=integer(), default=20, metavar="N", help="number of records (default 20)")
    made.add_argument("-f", "--follow", action="store_true", help="follow new records, until Ctrl-C")
    made.add_argument("--kind", choices=KINDS, help="records of this kind only")


def command(args: argparse.Namespace, pause: Callable[[float], None] = time.sleep) -> int:
    """Print the last records, then follow."""
    reader = _reader(home_of(args), args.run, args.kind)
    show = json_line if args.json else _for_people()
    try:
        _print(reader.last(args.n), show)
        while args.follow:
            pause(POLL_SECONDS)
            _print(reader.read(), show)
    except KeyboardInterrupt:
        pass
    return 0


def _reader(home: Path, text: str, only_kind: str | None) -> "Follower | Watcher":
    """Read the run from its journals; from the hub when the journals are on another machine."""
    text = expand_latest(home, text)
    try:
        return Follower(home, find_run(home, text), only_kind)
    except UnknownRun:
        watcher = watch(home, text, only_kind)
        if watcher is None:
            raise
        return watcher


def _for_people() -> Callable[[Writer, Record], str]:
    """Lines as wide as the terminal; unlimited where the output is not a terminal."""
    if not sys.stdout.isatty():
        return line
    columns = text.width()
    return lambda writer, record: text.cut(line(writer, record), columns)


def _print(rows: list[Row], show: Callable[[Writer, Record], str]) -> None:
    for writer, record in rows:
        print(show(writer, record))
    sys.stdout.flush()


class Follower:
    """Reads all writers of a run side by side, also those that begin later."""

    def __init__(self, home: Path, run: str, only_kind: str | None = None) -> None:
        self._home = home
        self._run = run
        self._reader = RunReader(home, run)
        self._kind = only_kind

    def last(self, count: int) -> list[Row]:
        """The last records, by time; each writer is read from its newest segment backwards."""
        rows: list[Row] = []
        for name in layout.list_writers(self._home, self._run):
            rows += self._last_of(name, count)
        return sorted(rows, key=_written)[-count:] if count else []

    def read(self) -> list[Row]:
        """The records since the last call, by time."""
        return sorted((row for batch in self._reader.read() for row in self._rows(batch)), key=_written)

    def _last_of(self, name: str, count: int) -> list[Row]:
        """The last rows of one writer; its segments are read from the newest back until there are enough."""
        folder = layout.writer_folder(self._home, self._run, name)
        newest, *older = [int(path.stem) for path in reversed(layout.list_segments(folder))] or [0]
        tail = self._reader.tails[name] = Tail(folder, Position(segment=newest))
        rows, first = self._part(tail, None, count)
        for segment in older:
            if len(rows) == count:
                break
            part, first = self._part(Tail(folder, Position(segment=segment)), first, count - len(rows))
            rows.extendleft(reversed(part))
        return list(rows)

    def _part(self, tail: Tail, below: int | None, count: int) -> tuple[deque[Row], int | None]:
        """The last rows of the batches with lower sequence numbers, and the number of the first batch."""
        rows: deque[Row] = deque(maxlen=count)
        first = below
        for batch in tail.read_all():
            if below is not None and batch.seq >= below:
                break
            first = batch.seq if first is None else min(first, batch.seq)
            rows.extend(self._rows(batch))
        return rows, first

    def _rows(self, batch: Batch) -> Iterator[Row]:
        for record in batch.records:
            if self._kind is None or kind(record) == self._kind:
                yield batch.writer, record


def _written(row: Row) -> int:
    """The time of a record: for a span its end."""
    record = row[1]
    return record.time + (record.duration or 0) if isinstance(record, Span) else record.time


_STATUSES = {"ok": 1, "error": 2}
_MOST = 1000


def watch(home: Path, text: str, only_kind: str | None) -> "Watcher | None":
    """Watch a run through the hub; None when no hub has the home open."""
    client = open_http_client(home)
    return None if client is None else Watcher(client, resolve_run(client, home, text), only_kind)


class Watcher:
    """One run, followed over HTTP. `read` waits for new records."""

    def __init__(self, client: HttpClient, run: str, only_kind: str | None = None) -> None:
        self._client, self._run, self._kind = client, run, only_kind
        self._events = client.events("/api/live", run=run, kind=only_kind)
        next(self._events)  # from here on nothing is missed
        self._shown: set[tuple[object, ...]] = set()

    def last(self, count: int) -> list[Row]:
        """The last records, by time: spans, logs, events, alerts, and the newest value of each metric."""
        if not count:
            return []
        rows = sorted(self._stored(min(count, _MOST)), key=_written)[-count:]
        self._shown = {_identity(row) for row in rows}
        return rows

    def read(self) -> list[Row]:
        """The next records, by time; empty for a heartbeat of the hub."""
        name, data = next(self._events, ("end", {}))
        if name == "end":
            self._events = self._client.events("/api/live", run=self._run, kind=self._kind)
            return []
        rows = [row for row in _records_of(data) if _identity(row) not in self._shown] if name == "records" else []
        return sorted(rows, key=_written)

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
        yield from ((writer_of(each), _record(each)) for each in found)


def _values(run: str, keys: list[dict[str, Any]]) -> Iterator[Row]:
    """The newest value of each key, grouped by time."""
    moments: dict[tuple[int | None, float], dict[str, Any]] = {}
    for each in keys:
        if each["last"] is not None:
            moments.setdefault((each["last_step"], each["last_time"] or 0.0), {})[each["key"]] = float(each["last"])
    for (step, at), values in moments.items():
        yield writer_of({"run": run}), Metric(_ns(at), step, None, None, values)


def _records_of(data: dict[str, Any]) -> Iterator[Row]:
    """The records of one event."""
    writer = writer_of(data)
    moments: dict[tuple[int | None, float], dict[str, Any]] = {}
    for key, columns in data.get("points", {}).items():
        for step, at, value in zip(columns["step"], columns["time"], columns["value"], strict=True):
            if value is not None:
                moments.setdefault((step, at or 0.0), {})[key] = float(value)
    for (step, at), values in moments.items():
        yield writer, Metric(_ns(at), step, None, None, values)
    for name in ("spans", "logs", "events", "alerts"):
        yield from ((writer, _record(each)) for each in data.get(name, ()))


def writer_of(data: dict[str, Any]) -> Writer:
    """The process of a record in an answer of the hub."""
    return Writer(
        id=data.get("writer", ""),
        run=data["run"],
        project="",
        rank=data.get("rank", 0),
        attempt=data.get("attempt", 1),
    )


def _record(data: dict[str, Any]) -> Record:
    return span_of(data) if "duration_ms" in data else log_of(data)


def span_of(data: dict[str, Any]) -> Span:
    """A span in an answer of the hub."""
    return Span(
        time=_ns(data["start"]),
        duration=None if data["duration_ms"] is None else round(data["duration_ms"] * 1e6),
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


def log_of(data: dict[str, Any]) -> Log | Event | Alert:
    """A log, event or alert in an answer of the hub."""
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


def _identity(row: Row) -> tuple[object, ...]:
    record = row[1]
    return kind(record), record.step, record.time, getattr(record, "name", ""), getattr(record, "span_id", b"")
