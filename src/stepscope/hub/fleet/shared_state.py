"""What the hubs of a store share: read from memory, polled from the store, written by the hub with the first shard."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

import msgspec

from stepscope.hub.refusals import OutcomeUnknown, Refusal, Refused, changed_meanwhile
from stepscope.hub.store.cluster.documents import (
    Conflict,
    Document,
    Documents,
    DocumentWrite,
    DocumentWriter,
    Unconfirmed,
)
from stepscope.hub.store.cluster.ownership import Member, Ownership
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.threads import Periodic
from stepscope.model.errors import Retry
from stepscope.sinks.http import Connection

PATH = "/hubs/documents"
POLL_SECONDS = 0.25
_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
"""How long the hub that writes is waited for, and how long when it is asked again because it did not answer."""
_FIRST_SHARD = 0
_COMPACT_EVERY = 1000
"""After so many writes, superseded versions may be deleted."""

_encode = msgspec.msgpack.Encoder().encode
_writes = msgspec.msgpack.Decoder(list[DocumentWrite]).decode
_documents = msgspec.msgpack.Decoder(list[Document]).decode


class SharedState:
    """The documents that all hubs of a store share. Safe from several threads.

    What `write` returned from is seen by every hub that reaches the store, after one poll.
    """

    def __init__(self, engine: Engine, ownership: Ownership, connect: Callable[[str], Connection] = Connection) -> None:
        self._ownership, self._connect = ownership, connect
        self._known = Documents(engine)
        self._known.subscribe(self._notify)
        self._writer = DocumentWriter(engine.shard(_FIRST_SHARD), self._known, ownership.leases[_FIRST_SHARD])
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._listeners: defaultdict[str, list[Callable[[Sequence[Document]], object]]] = defaultdict(list)
        self._after_polls: list[Callable[[], object]] = []
        self._polling = Periodic(self._poll, first=0.0, every=POLL_SECONDS, what="reading what other hubs changed")
        self._writes = 0

    @property
    def problem(self) -> str:
        """Why what other hubs change is not seen at present; empty when it is."""
        return self._polling.problem

    @property
    def loaded(self) -> bool:
        """Whether the store was read since this hub was started."""
        return self._known.loaded

    def start(self) -> None:
        """Begin to follow what other hubs change."""
        self._polling.start()

    def stop(self) -> None:
        """Stop following."""
        self._polling.stop()
        for connection in self._connections.values():
            connection.close()

    def after_each_poll(self, call: Callable[[], object]) -> None:
        """Call a function after each poll, on its thread: it looks at files of the home that are shared."""
        self._after_polls.append(call)

    def listen(self, kind: str, listener: Callable[[Sequence[Document]], object]) -> None:
        """Call a function with the documents of a kind that changed; it must be quick."""
        self._listeners[kind].append(listener)

    def all(self, kind: str) -> dict[str, Document]:
        """The documents of a kind by key, as last read."""
        return {key: each for key, each in self._known.all(kind).items() if not each.deleted}

    def known(self, kind: str) -> Mapping[str, Document]:
        """The same with those that were deleted."""
        return self._known.all(kind)

    def write(self, *wanted: DocumentWrite) -> None:
        """Change documents, all or none. Refused when one is not as expected; Retry, with why, when it must wait.

        OutcomeUnknown when they may have been changed and nobody says whether they were: it was tried twice then.
        """
        if not wanted:
            return
        with self._lock:
            made = self._write(wanted)
        self._known.add(made)

    def _write(self, wanted: Sequence[DocumentWrite]) -> list[Document]:
        unknown: OutcomeUnknown | None = None
        for seconds in (_SECONDS, _AGAIN_SECONDS):
            try:
                return self._try(wanted, seconds)
            except OutcomeUnknown as error:
                unknown = error
            except Retry:
                if unknown is None:
                    raise
        assert unknown is not None
        raise unknown

    def _try(self, wanted: Sequence[DocumentWrite], seconds: float) -> list[Document]:
        owner = self._ownership.writer(_FIRST_SHARD)
        if isinstance(owner, Retry):
            raise Retry(f"nothing can be changed now: {owner}", after=2.0)
        return self._store(wanted) if owner is None else self._send(owner, _encode(wanted), seconds)

    def _store(self, wanted: Sequence[DocumentWrite]) -> list[Document]:
        try:
            self._writes += len(wanted)
            return self._writer.write(wanted)
        except Conflict as error:
            raise changed_meanwhile(str(error)) from None
        except Unconfirmed as error:
            raise OutcomeUnknown(str(error)) from error
        except EngineError as error:
            raise Retry(f"nothing can be changed while the store does not accept writes: {error}", after=2.0) from error

    def _send(self, owner: Member, body: bytes, seconds: float) -> list[Document]:
        connection = self._connections.get(owner.address)
        if connection is None:
            connection = self._connections[owner.address] = self._connect(owner.address)
        try:
            answer = connection.post(PATH, body, owner.headers, seconds)
        except Retry as error:
            why = f"the hub at {owner.address}, which writes it, does not answer: {error}"
            if isinstance(error.__cause__, ConnectionRefusedError):
                raise Retry(f"nothing can be changed now: {why}", after=2.0) from error
            raise OutcomeUnknown(why) from error
        if answer.status == HTTPStatus.OK:
            return _documents(answer.body)
        text = _message(answer.body)
        if answer.status == HTTPStatus.CONFLICT:
            raise Refused(Refusal(HTTPStatus.CONFLICT, text))
        if answer.status == HTTPStatus.GATEWAY_TIMEOUT:
            raise OutcomeUnknown(f"the hub at {owner.address} does not know it: {text}")
        raise Retry(text, after=2.0)

    def take(self, data: bytes) -> bytes:
        """Store what another hub sends; Retry when this hub does not have the first shard."""
        try:
            wanted = _writes(data)
        except (ValueError, RecursionError):
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body must be changes of documents")) from None
        if self._ownership.writer(_FIRST_SHARD) is not None:
            raise Retry("nothing can be changed now: another hub is taking over the first shard", after=1.0)
        return _encode(self._store(wanted))

    def _poll(self) -> None:
        self._known.poll()
        for call in self._after_polls:
            call()
        if self._writes >= _COMPACT_EVERY and self._ownership.writer(_FIRST_SHARD) is None:
            self._writes = 0
            self._writer.compact()

    def _notify(self, changed: Sequence[Document]) -> None:
        for kind, listeners in self._listeners.items():
            found = [each for each in changed if each.kind == kind]
            for listener in listeners if found else ():
                listener(found)


def _message(body: bytes) -> str:
    with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError):
        return str(msgspec.json.decode(body)["error"]["message"])
    return body[:200].decode("utf-8", "replace")
