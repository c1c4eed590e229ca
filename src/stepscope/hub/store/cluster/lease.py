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
    """The hub that has a shard, and for how many seconds more."""

    shard: int
    epoch: int
    hub: str
    name: str
    left: int


def prepare(engine: Engine) -> None:
    """Create the table of leases if it is missing."""
    schema.create(engine, "leases", _TABLE)


def holder_of(tables: Tables, shard: int) -> Holder | None:
    """The last hub that took a shard; of two that took it at once, the same one for everybody."""
    found = tables.query_all(
        f"""SELECT shard, epoch, hub, argMax(name, beat) AS label, toInt64(argMax(until, beat) - {NOW}) AS left
        FROM leases WHERE shard = {shard} GROUP BY shard, epoch, hub ORDER BY epoch DESC, hub LIMIT 1"""
    )
    holders = [Holder(*row) for answer in found for row in answer.rows("shard", "epoch", "hub", "label", "left")]
    return min(holders, key=lambda each: (-each.epoch, each.hub, -each.left), default=None)


class Lease:
    """The right to write to one shard. Safe from several threads.

    A commit is allowed by `check`, and counts only if `check` holds once more after its ledger entry is written. Every
    time a hub takes a shard is a new epoch: what is left of an earlier process has lost the lease.
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
        self._hub, self._name = hub, name
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._beat = 0
        self._renewed = float("-inf")
        self.shard = shard
        self.epoch = 0
        """The epoch in which this hub has the shard; 0 while it does not."""

    def take(self, before: Holder | None) -> bool:
        """Take the shard from the hub that had it before; False when another one was faster."""
        with self._lock:
            self.epoch = before.epoch + 1 if before is not None else 1
            self._write(self._seconds)
        try:
            self.check()
        except Fenced:
            return False
        return True

    def check(self) -> None:
        """Raise Fenced unless the store says that this hub has the shard; renew when it is due."""
        if not self.epoch:
            raise Fenced(f"another hub writes to shard {self.shard} of the store")
        self._engine.settle(("leases",))
        holder = holder_of(self._engine, self.shard)
        with self._lock:
            if holder is None or (holder.epoch, holder.hub) != (self.epoch, self._hub):
                self.epoch = 0
                name = "another hub" if holder is None else f"another hub ({holder.name})"
                raise Fenced(f"{name} has taken over shard {self.shard}: this hub no longer writes to it")
            if self._clock() - self._renewed >= self._seconds / BEATS:
                self._write(self._seconds)

    def guard(self) -> None:
        """Check again if the lease may have expired since it was renewed; no query before that.

        A process that was stopped for a while finds out here that it lost the shard, before it sends anything.
        """
        if not self.epoch or self._clock() - self._renewed > self._seconds * (BEATS - 1) / BEATS:
            self.check()

    def release(self) -> None:
        """Let another hub take the shard at once, if the engine can be reached."""
        with contextlib.suppress(EngineError), self._lock:
            if self.epoch:
                self._write(0)
        self.epoch = 0

    def _write(self, seconds: int) -> None:
        began = self._clock()
        self._beat += 1
        self._engine.execute(
            f"INSERT INTO leases SELECT toUInt32({self.shard}), toUInt32({self.epoch}), {literal.text(self._hub)}, "
            f"{literal.text(self._name)}, toUInt64({self._beat}), {NOW} + {seconds}"
        )
        self._renewed = began
