"""A lease in the store itself: one hub at a time writes to a server, and one that lost it writes no more."""

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from stepscope.hub.store import literal, schema
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.model.errors import ConfigError

LEASE_SECONDS = 30
"""How long a hub that says nothing keeps the store."""
BEAT_SECONDS = 10.0
FENCED = 341
_TABLE = """(epoch UInt32, hub String, name String, beat UInt64, until Int64)
    ENGINE = ReplacingMergeTree(beat) ORDER BY (epoch, hub)"""
_NOW = "toInt64(toUnixTimestamp(now()))"
"""Seconds by the server's clock: those of the hubs may differ."""


class Holder(NamedTuple):
    """The hub that has the store, and for how many seconds more."""

    epoch: int
    hub: str
    name: str
    left: int


class Lease:
    """Held from `take` to `release`, and checked before every commit: of two hubs that took it at once, one stops.

    Every start of a hub is an epoch of its own: what is left of an earlier process of the same hub has lost the lease.
    Between a check and the commit it allows there is a moment in which another hub may take over.
    """

    def __init__(self, engine: Engine, hub: str, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._hub, self._name = hub, name
        self._clock = clock
        self._epoch = self._beat = 0
        self._renewed = 0.0

    def take(self) -> None:
        """Take the store over; ConfigError while another hub has it."""
        schema.create(self._engine, "hubs", _TABLE)
        self._engine.settle(("hubs",))
        holder = self._holder()
        if holder is not None and holder.hub != self._hub and holder.left > 0:
            raise ConfigError(
                f"another hub ({holder.name}) has this store, for {holder.left} s more: stop it first. "
                "Several hubs on one store are not supported yet"
            )
        self._epoch = holder.epoch + 1 if holder is not None else 1
        self._write(LEASE_SECONDS)
        try:
            self.check()
        except EngineError as error:
            raise ConfigError(str(error)) from error

    def check(self) -> None:
        """Raise EngineError, which passes, unless this hub still has the store; renew the lease when it is due."""
        holder = self._holder()
        if holder is None or (holder.epoch, holder.hub) != (self._epoch, self._hub):
            name = "somebody" if holder is None else f"another hub ({holder.name})"
            raise EngineError(f"{name} took the store over: this hub stores nothing more until it is restarted", FENCED)
        if self._clock() - self._renewed >= BEAT_SECONDS / 2:
            self._write(LEASE_SECONDS)

    def release(self) -> None:
        """Let another hub take the store at once, if that can be said."""
        with contextlib.suppress(EngineError):
            self.check()
            self._write(0)

    def _write(self, seconds: int) -> None:
        self._beat += 1
        self._engine.execute(
            f"INSERT INTO hubs SELECT toUInt32({self._epoch}), {literal.text(self._hub)}, {literal.text(self._name)}, "
            f"toUInt64({self._beat}), {_NOW} + {seconds}"
        )
        self._renewed = self._clock()

    def _holder(self) -> Holder | None:
        found = self._engine.query(
            f"""SELECT epoch, hub, argMax(name, beat) AS label, toInt64(argMax(until, beat) - {_NOW}) AS left
            FROM hubs GROUP BY epoch, hub ORDER BY epoch DESC, hub LIMIT 1"""
        )
        return next((Holder(*row) for row in found.rows("epoch", "hub", "label", "left")), None)
