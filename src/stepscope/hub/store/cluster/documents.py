"""Documents that the hubs of a store share: versions in a table, which the hub with the first shard writes."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stepscope.hub.store import schema
from stepscope.hub.store.cluster.lease import Lease
from stepscope.hub.store.columns import Block, numbers, texts
from stepscope.hub.store.engine import Engine, EngineError, Tables
from stepscope.model.errors import StepscopeError

_TABLE = """(version UInt64, kind String, key String, value String, deleted UInt8, since UInt64)
    ENGINE = MergeTree ORDER BY version"""
_COLUMNS = ("version", "kind", "key", "value", "deleted", "since")
_EPOCH_BITS = 32
_OVERLAP_SECONDS = 60.0
"""Rows are read again for so long: a replica may get them in another order than they were written in."""
_RELOAD_SECONDS = 600.0
MAX_DEAD = 1000
"""Superseded versions that are kept before they are deleted."""


class Document(msgspec.Struct, frozen=True, array_like=True):
    """One version of a document; versions increase over all documents."""

    kind: str
    key: str
    version: int
    value: str
    deleted: bool = False


class DocumentWrite(msgspec.Struct, frozen=True, array_like=True):
    """A change of a document: a new value, or None to delete it."""

    kind: str
    key: str
    value: str | None
    expected: int | None = None
    """The version that is replaced, 0 for none or a deleted one; None to replace any."""


class Conflict(StepscopeError):
    """A document, which is named, was changed by somebody else since it was read."""


class Unconfirmed(EngineError):
    """Documents were sent to the store, which did not confirm them; they may count."""


Kinds = dict[str, dict[str, Document]]
Subscriber = Callable[[Sequence[Document]], object]


class _Row(msgspec.Struct, frozen=True):
    document: Document
    since: int
    """For the row that begins an epoch: versions after this and before its own do not count."""


class Documents:
    """The documents of a store, in memory as last read. Reading never waits; safe from several threads."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._tables, self._clock = engine.shard(0), clock
        self._lock = threading.Lock()
        self._kinds: Kinds = {}
        self._newest = 0
        self._begins: set[tuple[int, int]] = set()
        """For each epoch: versions after the first and before the second number do not count."""
        self._seen: deque[tuple[float, int]] = deque([(float("-inf"), 0)])
        """When which version was the newest."""
        self._reload_at = float("-inf")
        self.loaded = False
        """Whether the store was read; a hub may start while it cannot be."""
        self._subscriber: Subscriber = lambda changed: None
        schema.create(engine, "documents", _TABLE)
        with contextlib.suppress(EngineError):  # the next poll reads everything
            self.load()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call a function with the documents that changed, also by this hub; it must be quick."""
        self._subscriber = subscriber

    @property
    def newest(self) -> int:
        """The highest version that counts."""
        return self._newest

    def all(self, kind: str) -> Mapping[str, Document]:
        """The documents of a kind by key, deleted ones included."""
        return self._kinds.get(kind, {})

    def load(self, *, all_replicas: bool = False) -> None:
        """Read everything, on every replica that answers if nothing that one of them took may be missed."""
        with self._lock:
            changed = self._load(all_replicas)
        self._notify(changed)

    def poll(self) -> None:
        """Read what is new."""
        with self._lock:
            rows = self._read(self._cursor())
            stale = not _begins(rows) <= self._begins or self._clock() > self._reload_at
            changed = self._load() if stale else self._apply([row.document for row in rows])
        self._notify(changed)

    def add(self, made: Sequence[Document]) -> None:
        """Add versions that were just stored."""
        with self._lock:
            changed = self._apply(made)
        self._notify(changed)

    def _notify(self, changed: Sequence[Document]) -> None:
        if changed:
            self._subscriber(changed)

    def _cursor(self) -> int:
        """The version up to which nothing can be missing."""
        now = self._clock()
        if self._seen[-1][1] < self._newest:
            self._seen.append((now, self._newest))
        while len(self._seen) > 1 and self._seen[1][0] < now - _OVERLAP_SECONDS:
            self._seen.popleft()
        return self._seen[0][1]

    def _load(self, all_replicas: bool = False) -> list[Document]:
        rows = self._read(0, all_replicas)
        before, self._kinds = self._kinds, {}
        self._begins = _begins(rows)
        self._newest = max((version for _, version in self._begins), default=0)
        self._reload_at = self._clock() + _RELOAD_SECONDS
        self._apply([row.document for row in rows])
        # A replica that is behind takes nothing away; versions that do not count are left out again.
        self._apply(each for documents in before.values() for each in documents.values())
        self.loaded = True
        return list(_differences(before, self._kinds))

    def _apply(self, found: Iterable[Document]) -> list[Document]:
        changed: dict[tuple[str, str], Document] = {}
        for each in found:
            known = self._kinds.get(each.kind, {}).get(each.key)
            if not each.kind or any(since < each.version < begun for since, begun in self._begins):
                continue
            if known is None or known.version < each.version:
                changed[each.kind, each.key] = each
                self._newest = max(self._newest, each.version)
        kinds = dict(self._kinds)
        for kind in {each.kind for each in changed.values()}:
            kinds[kind] = kinds.get(kind, {}) | {each.key: each for each in changed.values() if each.kind == kind}
        self._kinds = kinds
        return list(changed.values())

    def _read(self, after: int, all_replicas: bool = False) -> list[_Row]:
        asked = f"SELECT {', '.join(_COLUMNS)} FROM documents WHERE version > {after} ORDER BY version"
        answers = self._tables.query_all(asked) if all_replicas else [self._tables.query(asked)]
        return [
            _Row(Document(kind, key, version, value, bool(deleted)), since)
            for answer in answers
            for version, kind, key, value, deleted, since in answer.rows(*_COLUMNS)
        ]


def _begins(rows: Iterable[_Row]) -> set[tuple[int, int]]:
    return {(row.since, row.document.version) for row in rows if not row.document.kind}


def _differences(before: Kinds, now: Kinds) -> Iterable[Document]:
    for kind, documents in now.items():
        known = before.get(kind, {})
        yield from (each for key, each in documents.items() if known.get(key) != each)
    for kind, documents in before.items():
        left = now.get(kind, {})
        yield from (Document(kind, key, 0, "", deleted=True) for key in documents if key not in left)


class DocumentWriter:
    """Writes documents while this hub has the first shard. Safe from several threads.

    A write counts when the hub still had the shard after it was stored. A hub that takes the shard first notes the
    newest version that it read: what another hub was writing then has a version in between, and does not count.
    """

    def __init__(self, tables: Tables, documents: Documents, lease: Lease) -> None:
        self._tables, self._documents, self._lease = tables, documents, lease
        self._lock = threading.Lock()
        self._epoch = 0
        """The epoch whose beginning is stored; 0 when it must be stored again, as after a failure."""
        self._last = 0
        """The last version that was tried."""

    def write(self, wanted: Sequence[DocumentWrite]) -> list[Document]:
        """Store changes, all or none; Conflict, Fenced when another hub has the shard, EngineError.

        Unconfirmed when they may be stored all the same.
        """
        with self._lock:
            self._lease.check()
            epoch = self._lease.epoch
            if epoch != self._epoch:
                self._begin(epoch)
            made = self._numbered(wanted)
            if made:
                try:
                    self._store([_Row(each, 0) for each in made], epoch)
                except EngineError as error:
                    raise Unconfirmed(error.cause, error.code) from error
                self._documents.add(made)
            return made

    def _begin(self, epoch: int) -> None:
        self._tables.settle(("documents",))
        self._documents.load(all_replicas=True)
        newest = self._documents.newest
        self._last = max(epoch << _EPOCH_BITS, newest, self._last) + 1
        self._lease.check(epoch)
        self._store([_Row(Document("", "", self._last, ""), newest)], epoch)

    def _numbered(self, wanted: Sequence[DocumentWrite]) -> list[Document]:
        made = []
        for each in wanted:
            known = self._documents.all(each.kind).get(each.key)
            version = known.version if known is not None and not known.deleted else 0
            if each.expected not in (None, version):
                if known is not None and (known.value, known.deleted) == (each.value or "", each.value is None):
                    continue  # it is repeated, since its answer was lost
                raise Conflict(f"{each.kind} {each.key}")
            self._last += 1
            made.append(Document(each.kind, each.key, self._last, each.value or "", each.value is None))
        return made

    def _store(self, rows: Sequence[_Row], epoch: int) -> None:
        self._epoch = 0
        self._tables.insert("documents", _block(rows))
        self._lease.check(epoch)
        self._epoch = epoch

    def compact(self) -> None:
        """Delete superseded versions once there are many."""
        found = self._tables.query("SELECT version, kind, key FROM documents WHERE kind != ''")
        live = {each.version for kind in set(found["kind"]) for each in self._documents.all(kind).values()}
        dead = sorted(version for version in found["version"] if version not in live)
        if len(dead) <= MAX_DEAD:
            return
        self._lease.check()
        oldest = ", ".join(map(str, dead[: len(dead) - MAX_DEAD // 2]))
        self._tables.execute(f"ALTER TABLE documents DELETE WHERE version IN ({oldest})")


def _block(rows: Sequence[_Row]) -> Block:
    found = [row.document for row in rows]
    columns: dict[str, Any] = {
        "version": numbers("UInt64", [each.version for each in found]),
        "kind": texts([each.kind for each in found]),
        "key": texts([each.key for each in found]),
        "value": texts([each.value for each in found]),
        "deleted": numbers("UInt8", [each.deleted for each in found]),
        "since": numbers("UInt64", [row.since for row in rows]),
    }
    return columns
