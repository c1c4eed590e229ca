"""Batches of shards that other hubs write to are sent there; one that comes back is stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from stepscope.hub.fleet.forwarding import Router
from stepscope.hub.store.cluster.ownership import Member
from stepscope.hub.store.store import Outcome, Store
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log
from stepscope.sinks.http import Answer, Connection

OTHER = Member("b" * 16, "other", "http://other", "secret", 10)
BATCH = Batch(Writer(id="w", run="r", project="p"), 0, [Log(1, None, None, None, None, 9, "x")])


class SharedStore:
    """A store whose runs another hub writes, or this one."""

    def __init__(self) -> None:
        self.owner: Member | None = OTHER
        self.taken: list[int] = []

    def owners(self, runs: Iterable[str]) -> dict[str, Member | Retry | None]:
        """The same hub for all."""
        return dict.fromkeys(runs, self.owner)

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Take everything."""
        self.taken += [batch.seq for batch in batches]
        return [None] * len(batches)


class OtherHub:
    """A hub that takes every request."""

    def __init__(self) -> None:
        self.requests = 0

    def post(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        """Count it."""
        self.requests += 1
        return Answer(200, {}, b"")


def test_a_batch_that_comes_back_is_stored() -> None:
    """The other hub lost its shard and sent the batch back: in the next group it is new, in the same one it is not."""
    store, hub, group = SharedStore(), OtherHub(), [1]
    router = Router(cast(Store, store), lambda batch: "test", lambda url: cast(Connection, hub), lambda: group[0])
    for _ in range(2):
        assert router.write_many([BATCH]) == [None]
        assert (router.is_forwarded(BATCH), hub.requests, store.taken) == (True, 1, [])
    store.owner, group[0] = None, 2
    assert router.write_many([BATCH]) == [None]
    assert (router.is_forwarded(BATCH), hub.requests, store.taken) == (False, 1, [0])
