"""Several hubs on one store: batches go to the hub that writes to the shard of their run, which journals them."""

import hmac
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus

import msgspec

from stepscope.hub.intake.intake_journal import Intake, IntakeBatch, pack_whole
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.store.cluster.ownership import Member
from stepscope.hub.store.store import Outcome, Store
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Writer
from stepscope.sinks.http import Connection
from stepscope.wire import frames

PATH = "/hubs/batches"
BODY_BYTES = frames.LIMIT + 1024 * 1024
"""The most bytes of one request between hubs; any batch of a journal fits."""
_REQUEST_BYTES = 4 * 1024 * 1024
"""Batches are put together up to this size."""
_SECONDS = 20.0
_encode = msgspec.msgpack.Encoder().encode


class _Head(msgspec.Struct, array_like=True, frozen=True):
    """A packed batch whose records are not read."""

    receiver: str
    writer: Writer
    seq: int
    records: msgspec.Raw


_bodies = msgspec.msgpack.Decoder(list[bytes]).decode
_heads = msgspec.msgpack.Decoder(_Head).decode


class Router:
    """A shared store as a destination of batches: those for shards of other hubs are sent to these. One thread uses it.

    A batch is safe when its hub stored it, or has it in its journal, synced.
    """

    def __init__(
        self,
        store: Store,
        receiver: Callable[[Batch], str],
        connect: Callable[[str], Connection],
        current_group: Callable[[], int],
        not_now: Callable[[str, Retry], Retry] = lambda run, error: error,
    ) -> None:
        self._store = store
        self._not_now = not_now
        """The outcome of a batch of a run whose hub did not take it, for an error."""
        self._receiver = receiver
        self._current_group = current_group
        """The number of the group that is being written: a group may be offered several times."""
        self._connect = connect
        self._connections: dict[str, Connection] = {}
        self._sent: set[tuple[str, str, int]] = set()
        """Batches of the current group that other hubs took. In a later one the same batch may have come back."""
        self._group = -1

    def is_forwarded(self, batch: Batch) -> bool:
        """Return whether another hub took a batch of the last group."""
        return batch.key in self._sent

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store or forward batches and return the outcome of each."""
        if self._group != self._current_group():
            self._group = self._current_group()
            self._sent.clear()
        try:
            owners = self._store.owners({batch.writer.run for batch in batches})
        except Retry as error:
            return [error] * len(batches)
        outcomes: list[Outcome] = [None] * len(batches)
        here: list[int] = []
        away: dict[str, tuple[Member, list[int]]] = {}
        for index, batch in enumerate(batches):
            owner = owners[batch.writer.run]
            if batch.key in self._sent:
                continue
            if isinstance(owner, Retry):
                outcomes[index] = owner
            elif owner is None:
                here.append(index)
            else:
                away.setdefault(owner.hub, (owner, []))[1].append(index)
        for member, indices in away.values():
            self._forward(member, indices, batches, outcomes)
        found = self._store.write_many([batches[index] for index in here]) if here else []
        for index, outcome in zip(here, found, strict=True):
            outcomes[index] = outcome
        return outcomes

    def _forward(
        self, owner: Member, indices: Sequence[int], batches: Sequence[Batch], outcomes: list[Outcome]
    ) -> None:
        part: list[tuple[int, bytes]] = []
        for index in indices:
            packed, lost = pack_whole(IntakeBatch.of(self._receiver(batches[index]), batches[index]))
            if packed is None or lost:  # it came from a journal, where all records could be packed
                outcomes[index] = Reject("the records cannot be forwarded", range(len(batches[index].records)))
                continue
            if part and sum(len(each) for _, each in part) + len(packed) > _REQUEST_BYTES:
                self._send(owner, part, batches, outcomes)
                part = []
            part.append((index, packed))
        if part:
            self._send(owner, part, batches, outcomes)

    def _send(
        self,
        owner: Member,
        part: Sequence[tuple[int, bytes]],
        batches: Sequence[Batch],
        outcomes: list[Outcome],
    ) -> None:
        try:
            self._post(owner, _encode([packed for _, packed in part]))
        except Retry as error:
            for index, _ in part:
                outcomes[index] = self._not_now(batches[index].writer.run, error)
            return
        self._sent.update(batches[index].key for index, _ in part)

    def _post(self, owner: Member, body: bytes) -> None:
        if not owner.address:
            raise Retry(f"the hub that writes to the store ({owner.name}) takes no requests", after=1.0)
        connection = self._connections.get(owner.address)
        if connection is None:
            connection = self._connections[owner.address] = self._connect(owner.address)
        try:
            answer = connection.post(PATH, body, owner.headers, _SECONDS)
        except Retry as error:
            raise Retry(f"the hub at {owner.address} does not answer: {error}", after=1.0) from error
        if answer.status != HTTPStatus.OK:
            text = answer.body[:200].decode("utf-8", "replace")
            raise Retry(f"the hub at {owner.address} answers {answer.status}: {text}", after=0.5)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()


class Forwarded:
    """Takes what other hubs forward: only batches of shards that this hub writes to, so that none goes in circles."""

    def __init__(self, store: Store, member: Member, intake: Intake) -> None:
        self._store, self._member, self._intake = store, member, intake

    def admit(self, headers: Mapping[str, str]) -> None:
        """Check the secret that this hub gave to the others through the store; Refused without it."""
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(shown.encode(), self._member.secret.encode()):
            raise Refused(Refusal(HTTPStatus.UNAUTHORIZED, "only hubs of the same store may send this"))

    def take(self, data: bytes) -> "Future[None]":
        """Journal a request; the future completes when it is synced. Retry, and nothing taken, when it is not ours."""
        try:
            packed = _bodies(data)
            runs = {_heads(each).writer.run for each in packed}
        except (ValueError, RecursionError):
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body must be packed batches")) from None
        if any(owner is not None for owner in self._store.owners(runs).values()):
            raise Retry("another hub writes to the shard of this run", after=0.5)
        return self._intake.submit(packed)
