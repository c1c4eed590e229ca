"""Routes records from the journals: into the store, to other hubs, or deferred until their shard is back."""

from collections.abc import Callable

from stepscope.hub.cluster.deferred import DeferredShard, DeferringStore
from stepscope.hub.cluster.forwarding import Router
from stepscope.hub.home import HubHome
from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.readers import Readers
from stepscope.hub.intake.sources import FolderReceiver, GroupReader, IntakeReader
from stepscope.hub.intake.store_pump import PACE_SECONDS, QUIET_PACE_SECONDS, SINK, BatchStore, StorePump, StoreSink
from stepscope.hub.store.store import Store
from stepscope.journal.following import Cursors
from stepscope.journal.quarantine import Quarantine
from stepscope.model.ports import Batch, Writer
from stepscope.sinks.http import Connection


class StorePath:
    """A pump from the journals of a hub into its store, with what is on the way."""

    def __init__(
        self,
        store: Store,
        home: HubHome,
        cursors: Cursors,
        counters: Counters,
        intake: IntakeReader,
        folder: FolderReceiver,
        *,
        writer: Writer,
        is_deleted: Callable[[Batch], bool],
        connect: Callable[[str], Connection],
        most_bytes: int,
        readers: Readers,
        yields: bool,
    ) -> None:
        shards = store.engine.shards if store.engine.shards > 1 else 0
        deferred = [
            DeferredShard(home.journal.parent / f"shard-{index}", writer, cursors, counters) for index in range(shards)
        ]
        groups = GroupReader((intake, folder, *deferred), cursors, counters, check=home.check, is_deleted=is_deleted)
        self._router = Router(store, groups.receiver, connect, lambda: groups.number)
        destination: BatchStore = store if store.ownership is None else self._router
        self._deferring = DeferringStore(destination, deferred, groups.receiver, store.takes_writes, most_bytes)
        self.pump = StorePump(
            StoreSink(self._deferring if deferred else destination, home.check),
            groups,
            Quarantine(home.home, SINK),
            counters,
            idle=folder.next_due,
            # A store of several hubs may be read at another one.
            quiet_pace=QUIET_PACE_SECONDS if yields and store.ownership is None else PACE_SECONDS,
            readers=readers,
            passed_on=self._passed_on,
        )

    def _passed_on(self, batch: Batch) -> str:
        return "forwarded" if self._router.is_forwarded(batch) else self._deferring.outcome(batch)

    def deferred_bytes(self) -> int:
        """Count the bytes that wait for shards that are unavailable."""
        return self._deferring.bytes_behind()

    def close(self) -> None:
        """Close the journals of shards, and the connections to other hubs."""
        self._deferring.close()
        self._router.close()
