"""The events of a client and its sessions, recorded in the current run and thus for every sink."""

import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Any

import stepscope
from stepscope.extend import exception_attrs, is_first_sight, message_of, text_of
from stepscope.model.names import SEVERITIES
from stepscope.training import run_start
from stepscope.training.events import check_dialect, classify, failure, is_user_error, part, status_of
from stepscope.training.inputs import mapping, reject
from stepscope.wire import foreign_names
from stepscope.wire.foreign_names import SESSION_END, SESSION_START


class Session:
    """One session. Without an id, its events belong to the run's session and the sink numbers them."""

    def __init__(self, id: str | None) -> None:
        self.id = id
        self._index = 0
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()
        self._open = False

    def mark(self) -> dict[str, Any]:
        """Attributes of the next event: session, event id and position."""
        if self.id is None:
            return {}
        with self._lock:
            index = self._index
            self._index += 1
        return {
            foreign_names.ATTR_SESSION_ID: self.id,
            foreign_names.ATTR_EVENT_ID: str(uuid.uuid4()),
            foreign_names.ATTR_EVENT_INDEX: index,
        }

    def start(self) -> dict[str, Any] | None:
        """Attributes of SESSION_START; None when the session has already started."""
        with self._lock:
            if self._open:
                return None
            self._open, self._began = True, time.monotonic_ns()
        return {foreign_names.ATTR_EVENT_TYPE: foreign_names.SESSION_START}

    def end(self) -> dict[str, Any] | None:
        """Attributes of SESSION_END, with the duration; None unless the session is open."""
        with self._lock:
            if not self._open:
                return None
            self._open = False
            passed = timedelta(microseconds=(time.monotonic_ns() - self._began) // 1000)
        return {foreign_names.ATTR_EVENT_TYPE: foreign_names.SESSION_END, foreign_names.ATTR_DURATION: str(passed)}


_known: "weakref.WeakValueDictionary[str, Session]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def session(id: str | None) -> Session:
    """The session with an id, shared by its concurrent users; a new one for None."""
    if id is None:
        return Session(None)
    with _lock:
        found = _known.get(id)
        if found is None:
            found = _known[id] = Session(id)
        return found


FLUSH_SECONDS = 5.0
"""How long a fatal exception waits at most to be written to the journal."""
_ON = ("1", "true", "yes", "on")


class QueueState(Enum):
    """The state of a request's queue, as reported by the server."""

    ACTIVE = "active"
    PAUSED_RATE_LIMIT = "paused_rate_limit"
    PAUSED_CAPACITY = "paused_capacity"
    UNKNOWN = "unknown"


class Telemetry:
    """Logs the events of one session. No method raises, waits for a server or drops an accepted event.

    Events go to the current run, which writes them to its journal, even while a server is down. Without a current run
    one is started, with a Tinker sink if TINKER_BASE_URL is set and TINKER_TELEMETRY is not off. With
    `start_run=False` none is started, and `log` returns False without a run. The `holder` is stored for the caller
    and not used. The dialect decides which errors are user errors; ConfigError for an unknown one.
    """

    def __init__(
        self,
        session_id: str | None = None,
        holder: Any = None,
        *,
        dialect: str = "document",
        start_run: bool = True,
    ) -> None:
        check_dialect(dialect)
        self.session_id = None if session_id is None else text_of(session_id)
        self.holder = holder
        self.dialect = dialect
        self._session = session(self.session_id)
        if start_run:
            run_start.join_or_start_safely(_sinks(os.environ), {"name": self.session_id})

    def log(self, event_name: str, event_data: Any = None, severity: str = "INFO") -> bool:
        """Record an event with a mapping of data; True when it was accepted."""
        run = stepscope.current_run()
        if run is None:
            return False
        if text_of(severity).upper() not in SEVERITIES:
            reject("severity", severity)
            severity = "INFO"
        run.event(event_name, {**mapping("event_data", event_data), **self._session.mark()}, severity)
        return True

    def log_exception(self, exception: Any, severity: str = "ERROR") -> bool:
        """Record an exception: a user error as `user_error` with WARNING; any other with its message and stack."""
        if not isinstance(exception, BaseException):
            reject("exception", exception)
            return False
        if classify(exception, self.dialect):
            data = {"error_type": type(exception).__name__, "message": message_of(exception)}
            found = {key: part(exception, key) for key in ("status_code", "body")}
            data |= {key: value for key, value in found.items() if value is not None}
            return self.log("user_error", event_data=data, severity="WARNING")
        run = stepscope.current_run()
        if run is not None:
            is_first_sight(exception, run.id)  # so that the end of the process does not record it again
        return self.log("exception", event_data=exception_attrs(exception), severity=severity)

    def log_fatal_exception(self, exception: Any, severity: str = "ERROR") -> bool:
        """Record a fatal exception and wait until it is in the journal, at most FLUSH_SECONDS."""
        taken = self.log_exception(exception, severity)
        return self.flush() and taken

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until all logged events are in the journal."""
        return bool(stepscope.flush(timeout))

    def start(self) -> "Telemetry":
        """Record the start of the session, once."""
        self._record_boundary(SESSION_START, self._session.start())
        return self

    def close(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Record the end of the session, once and only if it was started, and flush."""
        self._record_boundary(SESSION_END, self._session.end())
        return self.flush(timeout)

    def _record_boundary(self, name: str, attrs: Mapping[str, Any] | None) -> None:
        """Record the start or end of the session, unless `attrs` is None: it is already recorded."""
        if attrs is not None:
            self.log(name, attrs)

    def request(self, request_type: str, **event_data: Any) -> "Request":
        """Record a request around a block, sync or async: `request.start`, then `.complete` or `.error`."""
        return Request(self, text_of(request_type), event_data)

    def queue_state(self, state: Any, **event_data: Any) -> bool:
        """Record a change of the queue's state as `queue.STATE`; `queue.paused` has a reason."""
        word = text_of(getattr(state, "value", state)).lower()
        paused, _, reason = word.partition("_")
        if paused == "paused":
            return self.log("queue.paused", event_data={**event_data, "reason": reason or "unknown"})
        return self.log(f"queue.{word}", event_data=event_data)

    def polling(
        self, request_id: str, request_type: str, *, clock: Callable[[], float] = time.monotonic
    ) -> "FuturePolling":
        """Record the polling of a future."""
        return FuturePolling(self, text_of(request_id), text_of(request_type), clock)

    def __enter__(self) -> "Telemetry":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.log_fatal_exception(error)
        self.close()


def _sinks(env: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The Tinker sink, if the client's variables name a service and do not disable telemetry."""
    is_on = env.get("TINKER_TELEMETRY", "1").strip().lower() in _ON
    return {"tinker": {}} if is_on and env.get("TINKER_BASE_URL") else {}


class Request:
    """The context manager of one request."""

    def __init__(self, telemetry: Telemetry, request_type: str, event_data: Mapping[str, Any]) -> None:
        self._telemetry = telemetry
        self._type = request_type
        self._data = dict(event_data)
        self._began = 0

    def __enter__(self) -> "Request":
        self._began = time.monotonic_ns()
        self._telemetry.log("request.start", event_data={"request_type": self._type, **self._data})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        data: dict[str, Any] = {"request_type": self._type, "duration_ms": (time.monotonic_ns() - self._began) / 1e6}
        if error is None:
            self._telemetry.log("request.complete", event_data={**data, "status": "success"})
            return
        users = is_user_error(error, self._telemetry.dialect)
        data |= {"error": message_of(error), "error_type": type(error).__name__, "is_user_error": users}
        self._telemetry.log("request.error", event_data=data, severity="ERROR")

    async def __aenter__(self) -> "Request":
        return self.__enter__()

    async def __aexit__(self, *raised: Any) -> None:
        self.__exit__(*raised)


class FuturePolling:
    """Counts the polls of one future and records their failures."""

    NAME = "APIFuture.result_async"

    def __init__(self, telemetry: Telemetry, request_id: str, request_type: str, clock: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._request = {"request_id": request_id, "request_type": request_type}
        self._clock = clock
        self._began = clock()
        self.iteration = 0
        """The number of polls."""

    def poll(self) -> int:
        """Count a poll; return its number, from 1."""
        self.iteration += 1
        return self.iteration

    def failed(self, error: BaseException, *, should_retry: bool) -> bool:
        """Record a failed poll by kind: status, connection, timeout, the request's work, or other."""
        data: dict[str, Any] = {
            **self._request,
            "should_retry": bool(should_retry),
            "iteration": self.iteration,
            "elapsed_time": self._clock() - self._began,
            "is_user_error": is_user_error(error, self._telemetry.dialect),
            "exception": message_of(error),
            "exception_type": type(error).__name__,
        }
        status = status_of(error)
        if status is not None:
            data["status_code"] = status
        name = f"{self.NAME}.{failure(error)}"
        return self._telemetry.log(name, event_data=data, severity="WARNING" if should_retry else "ERROR")
