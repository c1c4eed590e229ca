"""A hub among several on one store: what it forwards, defers, shares and relays, and the shards that it writes to."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stepscope.hub.fleet import forwarding, peers, shared_state
from stepscope.hub.fleet.deferred import DeferredShard, DeferringStore
from stepscope.hub.fleet.forwarding import BODY_BYTES, Forwarded, Router
from stepscope.hub.fleet.peers import Peers
from stepscope.hub.fleet.relay import Relay
from stepscope.hub.fleet.sharing import Sharing
from stepscope.hub.home import HubHome
from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import Intake
from stepscope.hub.intake.store_pump import BatchStore, GroupReader
from stepscope.hub.live import LiveTopics
from stepscope.hub.receivers.bodies import with_body
from stepscope.hub.refusals import json_response
from stepscope.hub.runs.deletion import RunDeletion
from stepscope.hub.security.guard import AccessRule, Guard, RequestHead
from stepscope.hub.security.tokens import RateLimits, Tokens
from stepscope.hub.store.cluster.ownership import Ownership
from stepscope.hub.store.engine import ClusterState
from stepscope.hub.store.store import Store
from stepscope.hub.threads import Periodic, Workers
from stepscope.journal.following import Cursors
from stepscope.journal.run_edits import Edits
from stepscope.model.ports import Batch, Writer
from stepscope.sinks.http import Connection, Tls

RECOVER_SECONDS = 0.5


class ShardUpkeep:
    """Renews leases and recovers shards, so that a shard that takes long delays neither the others nor the leases."""

    def __init__(self, store: Store, beat_seconds: float, on_gained: Callable[[], object]) -> None:
        self._store, self._on_gained = store, on_gained
        """Called when a shard that this hub has just got is recovered."""
        self._ready: set[int] = set(store.held())
        beat = Periodic(store.beat, first=beat_seconds, every=beat_seconds, what="renewing the leases of the store")
        self._threads = [beat] + [
            Periodic(
                partial(self._recover, shard),
                first=RECOVER_SECONDS,
                every=RECOVER_SECONDS,
                what=f"recovering shard {shard + 1} of the store",
            )
            for shard in range(store.engine.shards)
        ]

    @property
    def problem(self) -> str:
        """Why a shard is not kept or not recovered; empty when all are."""
        return next((each.problem for each in self._threads if each.problem), "")

    def start(self) -> None:
        """Start the threads; commits no longer wait for a recovery."""
        self._store.recover_apart()
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Stop the threads, waiting for a recovery that is under way."""
        for each in self._threads:
            each.stop()

    def _recover(self, shard: int) -> None:
        if not self._store.recover(shard):
            self._ready.discard(shard)
        elif shard not in self._ready:
            self._ready.add(shard)
            self._on_gained()


_CLUSTER_SECONDS = 5.0


class Fleet:
    """What a hub that shares its store with others does beside a single one. `start` begins, `stop` ends it.

    `route` leads its batches to the hubs that write them. It is called once, before `start`.
    """

    bodies: Mapping[str, int] = dict.fromkeys((forwarding.PATH, peers.PATH, shared_state.PATH), BODY_BYTES)
    """The limits of bodies that hubs send to each other, by path."""

    def __init__(
        self,
        store: Store,
        ownership: Ownership,
        home: HubHome,
        *,
        tokens: Tokens,
        rates: RateLimits,
        edits: Edits,
        deletion: RunDeletion,
        intake: Intake,
        cursors: Cursors,
        counters: Counters,
        writer: Writer,
        most_bytes: int,
        certificate: Path | None,
        here: LiveTopics,
        elsewhere: LiveTopics,
        on_gained: Callable[[], object],
    ) -> None:
        self._store, self._ownership, self._most_bytes = store, ownership, most_bytes
        self._tls = Tls(certificate=str(certificate) if certificate else None)
        self.sharing = Sharing(store.engine, ownership, self._connect, home, tokens, edits, deletion.expect)
        self._peers = Peers(ownership, self._connect, rates, here=here, elsewhere=elsewhere)
        self._forwarded = Forwarded(store, ownership.member, intake)
        shards = store.engine.shards if store.engine.shards > 1 else 0
        self.deferred = [
            DeferredShard(home.journal.parent / f"shard-{index}", writer, cursors, counters) for index in range(shards)
        ]
        """Sources of the batches whose shards were unavailable."""
        self._router: Router | None = None
        self._deferring: DeferringStore | None = None
        self._shards = ShardUpkeep(store, ownership.beat_seconds, on_gained)
        self.cluster: ClusterState | None = None
        """What of the store's cluster answers, as last looked at; None for a server that is not in one."""
        self._cluster_watch = Periodic(self._check_cluster, first=0.0, every=_CLUSTER_SECONDS)

    def _connect(self, url: str) -> Connection:
        """Connect to another hub, which shows the same certificate as this one."""
        return Connection(url, self._tls)

    def route(self, groups: GroupReader) -> BatchStore:
        """The destination of groups: the store, other hubs, or the journals of shards that are unavailable."""
        not_now = self._ownership.not_now
        self._router = Router(self._store, groups.receiver, self._connect, lambda: groups.number, not_now)
        if not self.deferred:
            return self._router
        takes = self._ownership.takes_writes
        self._deferring = DeferringStore(self._router, self.deferred, groups.receiver, takes, self._most_bytes)
        return self._deferring

    def passed_on(self, batch: Batch) -> str:
        """Return what became of a batch of the last group that is not stored here; empty for one that is."""
        if self._router is not None and self._router.is_forwarded(batch):
            return "forwarded"
        return self._deferring.outcome(batch) if self._deferring is not None else ""

    def deferred_bytes(self) -> int:
        """Count the bytes that wait for shards that are unavailable."""
        return sum(each.bytes_behind() for each in self.deferred)

    def describe(self) -> list[dict[str, Any]]:
        """The hubs that are alive and the shards of each, for health."""
        return self._ownership.describe()

    def written_here(self, runs: Iterable[str]) -> list[str]:
        """Those of some runs whose records are stored by this hub; Retry when that is not known now."""
        return [run for run, owner in self._store.owners(runs).items() if owner is None]

    @property
    def problem(self) -> str:
        """Why shards are not kept, or changes not shared; empty when they are."""
        return self._shards.problem or self.sharing.problem

    def start(self) -> None:
        """Begin to follow the other hubs, to keep the shards, and to send what is stored here."""
        self.sharing.state.start()
        self._peers.start()
        self._shards.start()
        self._cluster_watch.start()

    def stop(self) -> None:
        """Stop all of it; the pump must have stopped."""
        self.sharing.state.stop()
        self._shards.stop()
        self._cluster_watch.stop()
        self._peers.stop()
        if self._deferring is not None:
            self._deferring.close()
        if self._router is not None:
            self._router.close()

    def _check_cluster(self) -> None:
        self.cluster = self._store.engine.cluster_state()

    def relay(
        self, app: ASGIApp, guard: Guard, rule_of: Callable[[RequestHead], AccessRule], body_seconds: float
    ) -> ASGIApp:
        """Put the middleware that passes requests on to the hub with their state or files before an application."""
        tls = self._tls.context() if self._tls.certificate else None
        return Relay(app, self.sharing.homes, guard, rule_of, body_seconds, tls)

    def routes(self, workers: Workers) -> list[Route]:
        """The paths on which hubs send to each other; `workers` decode the bodies."""

        async def forwarded(request: Request) -> Response:
            """Take batches of another hub."""
            self._forwarded.admit(request.headers)
            await asyncio.wrap_future(await with_body(request, workers, self._forwarded.take))
            return json_response({"taken": True})

        async def stored(request: Request) -> Response:
            """Hear of what another hub has stored."""
            self._forwarded.admit(request.headers)
            await with_body(request, workers, self._peers.receive)
            return json_response({"heard": True})

        async def documents(request: Request) -> Response:
            """Store what another hub shares."""
            self._forwarded.admit(request.headers)
            taken = await run_in_threadpool(self.sharing.state.take, await request.body())
            return Response(taken, media_type="application/msgpack")

        return [
            Route(shared_state.PATH, documents, methods=["POST"]),
            Route(forwarding.PATH, forwarded, methods=["POST"]),
            Route(peers.PATH, stored, methods=["POST"]),
        ]
