"""Records of a Tinker session (start, heartbeats, end) and their writers."""

import hashlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stepscope.extend.receiver import Ingest, Upload, Writers
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.model.run_description import LONGEST_NAME
from stepscope.wire import foreign_names

PROJECT = "tinker"
CATEGORY = "tinker"
"""The category of metrics that the hub derives from a session."""
_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:stepscope:tinker")
_ENDINGS = {"success": "finished", "errored": "failed", "interrupted": "preempted"}


def digest(*words: str) -> bytes:
    """Return a 16-byte digest of strings."""
    return hashlib.blake2b("\0".join(words).encode("utf-8", "replace"), digest_size=16).digest()


def number_of(*words: str) -> int:
    """Derive a number from a record's identity, so that resending is idempotent."""
    return int.from_bytes(digest(*words)[:8]) >> 2


def new_session(idempotency_key: str) -> str:
    """Return the id of a new session; the same for a retried request."""
    return str(uuid.uuid5(_IDS, idempotency_key) if idempotency_key else uuid.uuid4())


def process_writer(run: str, process: str, resource: Mapping[str, Any]) -> Writer:
    """Return the writer of one process's events; it does not affect the state of the session."""
    id = f"tinker-{digest(run, process).hex()}"
    return Writer(id=id, run=run, project=PROJECT, main=False, resource=dict(resource))


def session_writer(run: str, name: str | None = None) -> Writer:
    """Return the writer of the session's own records."""
    id = f"tinker-{digest(run).hex()}"
    return Writer(id=id, run=run, project=PROJECT, name=name, resource={"service.name": "tinker"})


class SessionRecords:
    """Records sessions, with one writer per process. Safe to use from any thread."""

    def __init__(self, ingest: Ingest, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._writers = Writers(ingest, clock)
        self._beats: dict[str, int] = {}

    def add(
        self,
        upload: Upload,
        writer: Writer,
        records: Sequence[Record],
        project: str | None,
        seq: int | None = None,
        request: int = 0,
    ) -> bool:
        """Add records of a writer to an upload, in the token's project if any; return whether they are accepted."""
        return not self._writers.add(upload, writer, list(records), project, seq, request)

    def start(self, upload: Upload, session: str, request: Mapping[str, Any], project: str | None) -> None:
        """Record the creation of a session; `request` is the request body."""
        name = request.get("display_name")
        writer = session_writer(session, name[:LONGEST_NAME] if isinstance(name, str) and name else None)
        given = request.get("user_metadata")
        config = dict(given) if isinstance(given, dict) else {}
        config |= {key: request[key] for key in ("sdk_version", "project_id") if request.get(key)}
        attrs: dict[str, Any] = {
            "config": config,
            names.ATTR_RECEIVED_FROM: "tinker",
            foreign_names.ATTR_SESSION_ID: session,
        }
        if request.get("tags"):
            attrs["tags"] = request["tags"]
        event = Event(self._clock(), None, None, None, None, 9, names.EVENT_STARTED, attrs)
        self.add(upload, writer, [event], project, number_of(session, "start"))

    def beat(self, upload: Upload, session: str, project: str | None) -> None:
        """Record a heartbeat."""
        if len(self._beats) >= 10_000:
            self._beats.clear()
        count = self._beats[session] = self._beats.get(session, 0) + 1
        values: dict[str, Any] = {"heartbeats": count}
        self.add(upload, session_writer(session), [Metric(self._clock(), None, None, CATEGORY, values)], project)

    def finish(self, upload: Upload, session: str, request: Mapping[str, Any], project: str | None) -> None:
        """Record the end of a session; `request` is the request body."""
        reason = request.get("reason")
        word = reason.get("type") if isinstance(reason, dict) else None
        attrs: dict[str, Any] = {"status": _ENDINGS.get(str(word), "finished"), foreign_names.ATTR_SESSION_ID: session}
        if request.get("detail"):
            attrs["detail"] = str(request["detail"])
        event = Event(self._clock(), None, None, None, None, 9, names.EVENT_FINISHED, attrs)
        self.add(upload, session_writer(session), [event], project, number_of(session, "finish"))


def read_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty for anything else."""
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
