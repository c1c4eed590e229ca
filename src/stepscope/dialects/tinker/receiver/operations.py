"""Proxied requests as spans: an operation, its request, its queue time, and its polls."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import structs

from stepscope.dialects.tinker.receiver.record_queue import RecordQueue
from stepscope.dialects.tinker.receiver.request_ids import (
    MAX_BYTES,
    MAX_RESULT,
    Ids,
    read_ids,
    read_metrics,
    read_poll,
    route_name,
)
from stepscope.dialects.tinker.receiver.session_records import CATEGORY, SessionRecords, read_object, session_writer
from stepscope.dialects.tinker.receiver.telemetry_body import NO_SESSION, ClientEvent
from stepscope.extend.receiver import RequestHead
from stepscope.model.ports import run_id_problem
from stepscope.model.records import Event, Metric, Record, Span, SpanEvent
from stepscope.wire import foreign_names

MAX_KNOWN = 50_000
"""The limit of requests, models and sessions in memory."""
POLL = "retrieve_future"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})\b")
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_MAX_STATES = 100
_TRAINING = ("forward_backward", "forward", "optim_step")
_SET_UP = ("client.config", "client.dynamic_config", "auth.token", "healthz")
"""Requests that a client sends before it has a session; some servers lack some of them."""
_HEADERS = {
    "x-tinker-request-iteration": "tinker.iteration",
    "x-tinker-request-type": "tinker.request_type",
    "x-stainless-retry-count": "tinker.retries",
}
"""The recorded headers; none of them contains a credential."""
Value = TypeVar("Value")


@dataclass(slots=True)
class Operation:
    """One client operation: one trace, from its request to its result."""

    name: str
    session: str
    project: str | None
    step: int | None
    began: int
    trace_id: bytes
    span_id: bytes
    queue_id: bytes
    parent_id: bytes | None = None
    flags: int = 1
    request_id: str = ""
    model_id: str = ""
    accepted: int = 0
    ready: int = 0
    polls: int = 0
    states: list[SpanEvent] = field(default_factory=list)

    @property
    def run(self) -> str:
        """Return the run of its session."""
        return NO_SESSION if run_id_problem(self.session) else self.session


@dataclass(slots=True)
class Exchange:
    """One proxied request and its response."""

    operation: Operation
    head: RequestHead
    name: str
    route: str
    span_id: bytes
    began: int
    body: bytes
    """The first bytes of the request."""
    is_poll: bool = False
    sent: int = 0
    received: int = 0
    status: int = 0
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytearray = field(default_factory=bytearray)
    """The part of the response that will be parsed."""

    @property
    def traceparent(self) -> bytes:
        """Return the trace context passed to the service."""
        operation = self.operation
        return f"00-{operation.trace_id.hex()}-{self.span_id.hex()}-{operation.flags:02x}".encode()

    def pass_on(self, data: bytes) -> None:
        """Count a chunk of the response, and buffer it when it will be parsed."""
        self.received += len(data)
        if self.received <= (MAX_RESULT if self.is_poll else MAX_BYTES):
            self.answer += data

    @property
    def is_whole(self) -> bool:
        """Whether the whole response was buffered."""
        return self.received == len(self.answer)


class Operations:
    """The operations in progress. Used by the event loop, except `join`, which is safe from any thread."""

    def __init__(
        self,
        records: SessionRecords,
        queue: RecordQueue,
        stored_step: Callable[[str], int | None] = lambda session: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._records, self._queue = records, queue
        self._stored_step, self._clock = stored_step, clock
        self._requests: dict[str, Operation] = {}
        self._sessions: dict[str, str] = {}
        """The session of each model and sampling session."""
        self._steps: dict[str, int | None] = {}

    def begin(self, head: RequestHead, data: bytes, project: str | None) -> Exchange:
        """Begin an exchange; `data` are the first bytes of its body. A poll joins the operation it polls."""
        name, route = route_name(head.path)
        ids = read_ids(head.headers, data)
        known = self._requests.get(ids.request_id) if name == POLL else None
        began = self._clock()
        operation = known or self._new(name, ids, head, project, began)
        return Exchange(operation, head, name, route, os.urandom(8), began, data, is_poll=known is not None)

    def finish(self, exchange: Exchange) -> None:
        """Record an exchange that completed or failed."""
        end = self._clock()
        is_good = 200 <= exchange.status < 300
        found = read_ids(exchange.headers, bytes(exchange.answer)) if is_good and exchange.is_whole else Ids()
        operation = exchange.operation
        if exchange.name == "create_session" and found.session_id:
            operation.session = found.session_id
        for id in (found.model_id, found.sampling_session_id):
            if id and operation.session:
                _remember(self._sessions, id, operation.session)
        if is_good:
            self._record_session(exchange)
        if exchange.is_poll:
            self._polled(exchange, end)
        elif found.request_id and exchange.name not in (POLL, "retrieve_futures"):
            self._accepted(exchange, found.request_id, end)
        elif not (is_good and exchange.name == "session_heartbeat") and exchange.name not in _SET_UP:
            parent = exchange.operation.parent_id
            self._put(operation, self._request_span(exchange, end, f"tinker.{exchange.name}", parent))

    def join(self, event: ClientEvent) -> Event:
        """Return the record of a client event, with the trace of its request."""
        operation = self._requests.get(event.request_id)
        if operation is None or event.record.trace_id is not None:
            return event.record
        step = operation.step if event.record.step is None else event.record.step
        return structs.replace(event.record, trace_id=operation.trace_id, span_id=operation.span_id, step=step)

    def _new(self, name: str, ids: Ids, head: RequestHead, project: str | None, began: int) -> Operation:
        session = self._session(ids, head.path)
        step = self._step(session, name)
        found = _TRACEPARENT.match(head.headers.get("traceparent", ""))
        trace = bytes.fromhex(found[1]) if found else os.urandom(16)
        parent = bytes.fromhex(found[2]) if found else None
        flags = int(found[3], 16) if found else 1
        made = Operation(name, session, project, step, began, trace, os.urandom(8), os.urandom(8), parent, flags)
        made.model_id, made.request_id = ids.model_id, ids.request_id
        return made

    def _session(self, ids: Ids, path: str) -> str:
        """Return the session of a request: from its body, its model, the prefix of its model id, or its path."""
        if ids.session_id:
            return ids.session_id
        known = self._sessions.get(ids.model_id) or self._sessions.get(ids.sampling_session_id)
        if known:
            return known
        parts = path.split("/")
        if "sessions" in parts[:-1]:
            return parts[parts.index("sessions") + 1]
        id = ids.model_id or ids.sampling_session_id
        return id.partition(":")[0] if ":" in id else ""

    def _step(self, session: str, name: str) -> int | None:
        """Return the number of optimizer steps of a session; None before its first pass."""
        if session and session not in self._steps:
            _remember(self._steps, session, None)
            if name != "create_session":
                self._queue.put(lambda upload: self._resume(session))
        if name in _TRAINING and self._steps.get(session, 0) is None:
            self._steps[session] = 0
        return self._steps.get(session)

    def _resume(self, session: str) -> None:
        """Continue from the last stored step after a restart of the hub."""
        stored = self._stored_step(session)
        if stored is not None:
            self._steps[session] = stored + (self._steps.get(session) or 0)

    def _record_session(self, exchange: Exchange) -> None:
        """Record the start, a heartbeat or the end of a session."""
        session, project = exchange.operation.session, exchange.operation.project
        if not session or run_id_problem(session):
            return
        if exchange.name == "create_session":
            request = read_object(exchange.body)
            self._queue.put(lambda upload: self._records.start(upload, session, request, project))
        elif exchange.name == "session_heartbeat":
            self._queue.put(lambda upload: self._records.beat(upload, session, project))
        elif exchange.name == "sessions.finish":
            request = read_object(exchange.body)
            self._queue.put(lambda upload: self._records.finish(upload, session, request, project))

    def _accepted(self, exchange: Exchange, request_id: str, end: int) -> None:
        """Record that the service accepted a request; a repeated request id is the same operation."""
        operation = exchange.operation
        if request_id not in self._requests:
            operation.request_id, operation.accepted = request_id, end
            _remember(self._requests, request_id, operation)
            if operation.name == "optim_step":
                self._steps[operation.session] = (self._steps.get(operation.session) or 0) + 1
        self._put(operation, self._request_span(exchange, end, "tinker.request", operation.span_id))

    def _polled(self, exchange: Exchange, end: int) -> None:
        operation = exchange.operation
        operation.polls += 1
        is_whole = exchange.status and not exchange.error
        poll = read_poll(exchange.status, exchange.headers, bytes(exchange.answer)) if is_whole else None
        if poll is not None and poll.queue_state not in ("", *(state.name for state in operation.states[-1:])):
            attrs = {"reason": poll.reason} if poll.reason else {}
            operation.states.append(SpanEvent(end, poll.queue_state, attrs))
            del operation.states[:-_MAX_STATES]
        made: list[Record] = [self._request_span(exchange, end, "tinker.poll", operation.queue_id)]
        if poll is not None and poll.is_over and not operation.ready:
            operation.ready = end
            made += self._ended(operation, end, poll.error)
            if not poll.error and exchange.is_whole:
                self._queue.put(lambda upload: self._result(upload, operation, exchange, end))
        self._put(operation, *made)

    def _ended(self, operation: Operation, end: int, error: str) -> list[Record]:
        queue = self._span(operation, operation.queue_id, operation.span_id, "tinker.queue", operation.accepted, end)
        attrs = {"tinker.polls": operation.polls, "tinker.request_id": operation.request_id}
        queue = structs.replace(queue, attrs=attrs, events=tuple(operation.states))
        values: dict[str, Any] = {
            f"{operation.name}_seconds": (end - operation.began) / 1e9,
            f"{operation.name}_queue_seconds": (end - operation.accepted) / 1e9,
        }
        durations = Metric(end, operation.step, None, CATEGORY, values)
        return [self._operation_span(operation, end, error), queue, durations]

    def _result(self, upload: Any, operation: Operation, exchange: Exchange, end: int) -> None:
        """Record the metrics of a result, such as the loss of a forward pass."""
        values: dict[str, Any] = dict(read_metrics(exchange.headers, bytes(exchange.answer)))
        if values:
            made = Metric(end, operation.step, None, "trainer", values)
            self._records.add(upload, session_writer(operation.run), [made], operation.project)

    def _operation_span(self, operation: Operation, end: int, error: str) -> Span:
        made = self._span(
            operation, operation.span_id, operation.parent_id, f"tinker.{operation.name}", operation.began, end
        )
        attrs = {"tinker.request_id": operation.request_id, **_known(operation)}
        return structs.replace(made, attrs=attrs, status=_ERROR if error else 0, message=error)

    def _request_span(self, exchange: Exchange, end: int, name: str, parent: bytes | None) -> Span:
        operation = exchange.operation
        made = self._span(operation, exchange.span_id, parent, name, exchange.began, end)
        attrs: dict[str, Any] = {
            "http.request.method": exchange.head.method,
            "http.route": exchange.route,
            "http.request.body.size": exchange.sent,
            "http.response.body.size": exchange.received,
            **_known(operation),
        }
        attrs |= {name: exchange.head.headers[key] for key, name in _HEADERS.items() if key in exchange.head.headers}
        if exchange.status:
            attrs["http.response.status_code"] = exchange.status
        is_bad = bool(exchange.error) or (exchange.status >= 400 and not (exchange.is_poll and exchange.status == 408))
        why = exchange.error or (f"HTTP {exchange.status}" if is_bad else "")
        return structs.replace(made, span_kind=_CLIENT, attrs=attrs, status=_ERROR if is_bad else 0, message=why)

    def _span(self, operation: Operation, id: bytes, parent: bytes | None, name: str, begin: int, end: int) -> Span:
        lasted = max(end - begin, 0)
        return Span(begin, lasted, operation.step, None, operation.trace_id, id, parent, name, span_kind=_INTERNAL)

    def _put(self, operation: Operation, *made: Record) -> None:
        writer = session_writer(operation.run)
        self._queue.put(lambda upload: self._records.add(upload, writer, made, operation.project))


def _known(operation: Operation) -> dict[str, Any]:
    fields = {
        foreign_names.ATTR_SESSION_ID: operation.session,
        "tinker.model_id": operation.model_id,
        "tinker.request_id": operation.request_id,
    }
    return {key: value for key, value in fields.items() if value}


def _remember(known: "dict[str, Value]", key: str, value: Value) -> None:
    """Store a value under a key, and evict the oldest when there are too many."""
    known[key] = value
    if len(known) > MAX_KNOWN:
        del known[next(iter(known))]


def lower_headers(headers: "list[tuple[bytes, bytes]]") -> Mapping[str, str]:
    """Return headers as strings by lower-case name."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
