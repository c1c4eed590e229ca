"""The sessions of a client in this process: two clients of one session share its numbering and its start and end."""

import threading
import time
import uuid
import weakref
from datetime import timedelta
from typing import Any

from stepscope.model import names


class Session:
    """One session. Without an id its events belong to the session of the run, and the sink numbers them."""

    def __init__(self, id: str | None) -> None:
        self.id = id
        self._index = 0
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()
        self._open = False

    def mark(self) -> dict[str, Any]:
        """Attributes for the next event: which session, which event, at which position."""
        if self.id is None:
            return {}
        with self._lock:
            index = self._index
            self._index += 1
        return {
            names.ATTR_SESSION_ID: self.id,
            names.ATTR_EVENT_ID: str(uuid.uuid4()),
            names.ATTR_EVENT_INDEX: index,
        }

    def start(self) -> dict[str, Any] | None:
        """Attributes of SESSION_START; None when the session has started."""
        with self._lock:
            if self._open:
                return None
            self._open, self._began = True, time.monotonic_ns()
        return {names.ATTR_EVENT_TYPE: names.SESSION_START}

    def end(self) -> dict[str, Any] | None:
        """Attributes of SESSION_END, with the duration; None unless the session has started and not ended."""
        with self._lock:
            if not self._open:
                return None
            self._open = False
            passed = timedelta(microseconds=(time.monotonic_ns() - self._began) // 1000)
        return {names.ATTR_EVENT_TYPE: names.SESSION_END, names.ATTR_DURATION: str(passed)}


_known: "weakref.WeakValueDictionary[str, Session]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def session(id: str | None) -> Session:
    """The session of an id, shared by all that use it at the same time; a new one for None."""
    if id is None:
        return Session(None)
    with _lock:
        found = _known.get(id)
        if found is None:
            found = _known[id] = Session(id)
        return found
