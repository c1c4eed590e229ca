"""A lease on one shard, kept in the store itself: one hub at a time writes to a shard, and one that lost it stops."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from stepscope.hub.store import literal, schema
from stepscope.hub.store.engine import Engine, EngineError, Tables

LEASE_SECONDS = 15
"""How long a hub that does not renew its lease keeps the shard."""
BEATS = 5
"""A lease is renewed so many times before it would expire; nothing is written in the last part of it."""
_UNFINISHED = 341
_MAX_RIVALS = 100
"""So many hubs that took an epoch at once are known by name."""
_MAX_TRIES = 5
"""Epochs that a hub tries in a row while others take the same ones; then it waits for the next beat."""
_TABLE = """(shard UInt32, epoch UInt32, hub String, name String, beat UInt64, until Int64)
    ENGINE = ReplacingMergeTree(beat) ORDER BY (shard, epoch, hub)"""
NOW = "toInt64(toUnixTimestamp(now()))"
"""Seconds by the server's clock: those of the hubs may differ."""


def uptime() -> float:
    """Seconds since this machine started, the time in which it was suspended included where that is known."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Fenced(EngineError):
    """Another hub has the shard; what is to be written there may be taken later, or by that hub."""

    def __init__(self, message: str) -> None:
        super().__init__(message, _UNFINISHED)


class Holder(NamedTuple):
    """The hub that took a shard last, and for how many seconds more it has it."""

    shard: int
    epoch: int
    hub: str
    """Empty when several hubs took the epoch at once: then none of them has the shard."""
    name: str
    left: int


def prepare(engine: Engine) -> None:
    """Create the table of leases if it is missing."""
    schema.create(engine, "leases", _TABLE)


def holder_of(tables: Tables, shard: int) -> Holder | None:
    """The hub that took a shard last, the same one for everybody; none in an epoch that several hubs took."""
    found = _newest(tables, shard)
    if len(found) > 1:
        return Holder(shard, found[0].epoch, "", "several hubs at once", 0)
    return found[0] if found else None


def _newest(tables: Tables, shard: int) -> list[Holder]:
    """The hubs that took a shard in its newest epoch, by id, as all replicas that answer know them."""
    found = tables.query_all(
        f"""SELECT shard, epoch, hub, argMax(name, beat) AS label, toInt64(argMax(until, beat) - {NOW}) AS left
        FROM leases WHERE shard = {shard} GROUP BY shard, epoch, hub ORDER BY epoch DESC, hub LIMIT {_MAX_RIVALS}"""
    )
    rows = [Holder(*row) for answer in found for row in answer.rows("shard", "epoch", "hub", "label", "left")]
    epoch = max((each.epoch for each in rows), default=0)
    newest = {each.hub: each for each in sorted(rows, key=lambda each: each.left) if each.epoch == epoch}
    return [holder for _, holder in sorted(newest.items())]


class Lease:
    """The right to write to one shard. Safe from several threads.

    Every time a hub takes a shard is a new epoch, and **at most one hub ever acts in an epoch**. A hub writes its epoch
    and then reads who else did: of two that write the same one at once, the one that reads last finds both, so at most
    one finds itself alone, and only that one has the shard. An epoch that two hubs wrote ends there, also for a hub
    that had it for a moment.

    What is written to the shard depends on what was read of it before. It is safe if `check` holds after the reading,
    with the epoch in which it was read: a hub that takes the shard later then reads at least as much. A commit counts
    only if `check` holds once more after its ledger entry is written.
    """

    def __init__(
        self,
        engine: Tables,
        shard: int,
        hub: str,
        name: str,
        seconds: int = LEASE_SECONDS,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self._engine = engine
        self._name = name
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._beat = 0
        self._renewed = float("-inf")
        self.hub, self.shard = hub, shard
        self.epoch = 0
        """The epoch in which this hub has the shard; 0 while it does not."""

    def take(self, before: Holder | None) -> bool:
        """Take the shard from the hub that had it before; False when another one was faster.

        Of hubs that wrote the same epoch at once the first by id tries the next one, and the others leave it to that.
        """
        epoch = before.epoch if before is not None else 0
        for _ in range(_MAX_TRIES):
            epoch += 1
            with self._lock:
                self._write(epoch, self._seconds)
            self._engine.settle(("leases",))
            found = _newest(self._engine, self.shard)
            if not found or found[0].epoch != epoch or found[0].hub != self.hub:
                return False
            if len(found) == 1:
                with self._lock:
                    self.epoch = epoch
                return True
        return False

    def check(self, epoch: int = 0) -> None:
        """Raise Fenced unless the store says that this hub has the shard, in `epoch` if given; renew when it is due."""
        held = self.epoch
        if not held:
            raise Fenced(f"another hub writes to shard {self.shard} of the store")
        if epoch not in (0, held):
            raise Fenced(f"another hub wrote to shard {self.shard} of the store meanwhile")
        self._engine.settle(("leases",))
        holder = holder_of(self._engine, self.shard)
        with self._lock:
            if self.epoch != held:
                raise Fenced(f"another hub wrote to shard {self.shard} of the store meanwhile")
            if holder is None or (holder.epoch, holder.hub) != (held, self.hub):
                self.epoch = 0
                name = "another hub" if holder is None else f"another hub ({holder.name})"
                raise Fenced(f"{name} has taken over shard {self.shard}: this hub no longer writes to it")
            if self._clock() - self._renewed >= self._seconds / BEATS:
                self._write(held, self._seconds)

    def guard(self, epoch: int = 0) -> None:
        """Check again if the lease may have expired since it was renewed; no query before that.

        A process that was stopped for a while finds out here that it lost the shard, before it sends anything.
        """
        expired = self._clock() - self._renewed > self._seconds * (BEATS - 1) / BEATS
        if not self.epoch or epoch not in (0, self.epoch) or expired:
            self.check(epoch)

    def release(self) -> None:
        """Let another hub take the shard at once, if the engine can be reached."""
        with contextlib.suppress(EngineError), self._lock:
            if self.epoch:
                self._write(self.epoch, 0)
        self.epoch = 0

    def _write(self, epoch: int, seconds: int) -> None:
        began = self._clock()
        self._beat += 1
        self._engine.execute(
            f"INSERT INTO leases SELECT toUInt32({self.shard}), toUInt32({epoch}), {literal.text(self.hub)}, "
            f"{literal.text(self._name)}, toUInt64({self._beat}), {NOW} + {seconds}"
        )
        self._renewed = began
