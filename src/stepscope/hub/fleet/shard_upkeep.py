"""Threads that keep the shards of a hub: one renews the leases, one for each shard recovers it after a failure."""

from collections.abc import Callable
from functools import partial

from stepscope.hub.store.store import Store
from stepscope.hub.threads import Periodic

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
