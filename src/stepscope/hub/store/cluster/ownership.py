"""The hubs on a shared store: who is alive, and which shards each of them may write to."""

import contextlib
import math
import os
import secrets
import socket
import threading
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from stepscope.hub.store import literal, schema
from stepscope.hub.store.cluster import dialect, lease
from stepscope.hub.store.cluster.lease import BEATS, LEASE_SECONDS, NOW, Fenced, Holder, Lease
from stepscope.hub.store.cluster.placement import Placement
from stepscope.hub.store.cluster.waiting import Unfinished
from stepscope.hub.store.engine import Engine, EngineError, Tables
from stepscope.hub.store.schema import ShardUnavailable
from stepscope.model.errors import ConfigError, Retry

_TABLE = """(hub String, name String, address String, secret String, beat UInt64, until Int64)
    ENGINE = ReplacingMergeTree(beat) ORDER BY hub"""


@dataclass(frozen=True, slots=True)
class Member:
    """A hub on a shared store: where other hubs reach it, and the secret that they show."""

    hub: str
    name: str
    address: str = ""
    """The URL at which the other hubs reach it; empty for a process that takes no requests."""
    secret: str = field(default="", repr=False)
    left: int = 0
    """Seconds for which it counts as alive."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request to it. A hub knows itself as localhost, whatever the address that others use."""
        return {"host": "localhost", "authorization": f"Bearer {self.secret}"}


def this_process(hub: str = "", address: str = "") -> Member:
    """The member that this process is; without an id it is a new one."""
    name = f"{socket.gethostname()}, pid {os.getpid()}"
    return Member(hub or secrets.token_hex(8), name, address, secrets.token_hex(32))


class Ownership:
    """The leases of this hub, and what it knows of the other hubs. Safe from several threads."""

    def __init__(self, engine: Engine, member: Member, seconds: int = LEASE_SECONDS) -> None:
        self.member = member
        self._seconds = seconds
        self._lock = threading.Lock()
        self._beats = 0
        self._holders: dict[int, Holder] = {}
        self._members: dict[str, Member] = {}
        self._away: frozenset[int] = frozenset()
        """Shards that did not answer when they were last asked for their writers."""
        self._tables = [engine.shard(shard) for shard in range(engine.shards)]
        self.leases = [Lease(each, shard, member.hub, member.name, seconds) for shard, each in enumerate(self._tables)]
        self.placement = Placement(engine)
        self.shared = False
        """Whether other hubs may have some of the shards."""
        lease.prepare(engine)
        schema.create(engine, "members", _TABLE)

    @property
    def beat_seconds(self) -> float:
        """How often `beat` is to be called."""
        return self._seconds / BEATS

    def take_all(self) -> None:
        """Take every shard; ConfigError while another hub has one, EngineError when a shard is unavailable.

        Unfinished when a replica that was just read lacked the newest lease.
        """
        self._read()
        for shard in self._away:
            self._tables[shard].query("SELECT 1 AS there")
        for held in self._holders.values():
            if held.hub != self.member.hub and held.left > 0:
                raise ConfigError(
                    f"another hub ({held.name}) uses this store: stop it first (its lease ends in {held.left} s)"
                )
        for each in self.leases:
            if not each.take(self._holders.get(each.shard)):
                raise Unfinished("another hub has taken over the store")
        self._read()

    def join(self) -> None:
        """Count as alive from now on, and take the shards that are free."""
        self.shared = True
        self.beat()

    def beat(self) -> list[int]:
        """Stay alive, renew the leases, take free shards up to a fair share; the shards that are to be released.

        Shards that are unavailable are left as they are; EngineError when all of them are.
        """
        with self._lock:
            self._write(self._seconds)
            for each in self.leases:
                _renew(each)
            self._read()
            fair = math.ceil(len(self.leases) / max(len(self.living()), 1))
            for each in self.leases:
                held = self._holders.get(each.shard)
                free = held is None or held.left <= 0 or held.hub == self.member.hub
                if not each.epoch and free and each.shard not in self._away and len(self.held()) < fair:
                    with contextlib.suppress(EngineError):
                        each.take(held)
            self._read()
            return self.held()[fair:]

    def held(self) -> list[int]:
        """The shards that this hub may write to."""
        return [each.shard for each in self.leases if each.epoch]

    def living(self) -> list[Member]:
        """The hubs that are alive, by id."""
        return [each for _, each in sorted(self._members.items()) if each.left > 0]

    def writer(self, shard: int) -> Member | Retry | None:
        """The hub that writes to a shard, as last read: None for this one, Retry when none is known to be alive."""
        if self.leases[shard].epoch:
            return None
        held = self._holders.get(shard)
        owner = self._members.get(held.hub) if held is not None and held.left > 0 else None
        if owner is None or owner.hub == self.member.hub:
            return self._unowned(shard)
        return owner

    def may_recover_later(self, error: EngineError) -> bool:
        """Return whether a shard whose recovery failed may be recovered later, or by another hub."""
        return self.shared and (isinstance(error, Fenced) or (error.passing and len(self.leases) > 1))

    def not_now(self, run: str, error: Retry) -> Retry:
        """The outcome of a batch whose hub does not take it: that of its shard alone, where there are several."""
        place = self.placement.find([run])[run]
        if len(self.leases) == 1 or isinstance(place, ShardUnavailable):
            return error
        return ShardUnavailable(str(error), place, after=error.after or 0.0)

    def takes_writes(self, shard: int) -> bool:
        """Return whether a shard answers and its tables can be written."""
        try:
            found = self._tables[shard].query(dialect.read_only_tables())
        except EngineError:
            return False
        return not found.one("held")

    def _unowned(self, shard: int) -> Retry:
        why = f"no hub writes to shard {shard + 1} of the store at present"
        return ShardUnavailable(why, shard, after=1.0) if len(self.leases) > 1 else Retry(why, after=1.0)

    def describe(self) -> list[dict[str, Any]]:
        """The hubs that are alive and the shards of each, for health."""
        return [
            {
                "id": each.hub,
                "name": each.name,
                "address": each.address,
                "here": each.hub == self.member.hub,
                "shards": [
                    shard for shard, held in sorted(self._holders.items()) if held.left > 0 and held.hub == each.hub
                ],
            }
            for each in self.living()
        ]

    def leave(self) -> None:
        """Release everything, so that another hub need not wait."""
        for each in self.leases:
            each.release()
        with contextlib.suppress(EngineError), self._lock:
            if self._beats:
                self._write(0)

    def _read(self) -> None:
        """Ask every shard for its writer, and for the hubs that are known there; EngineError when none answers."""
        members: dict[str, tuple[int, Member]] = {}
        holders: dict[int, Holder] = {}
        errors: dict[int, EngineError] = {}
        for shard, tables in enumerate(self._tables):
            try:
                for beat, member in _members(tables):
                    members[member.hub] = max((beat, member), members.get(member.hub, (0, member)), key=itemgetter(0))
                held = lease.holder_of(tables, shard)
            except EngineError as error:
                errors[shard] = error
                continue
            if held is not None:
                holders[shard] = held
        if len(errors) == len(self._tables):
            raise errors[0]
        self._away = frozenset(errors)
        self._members = {hub: member for hub, (_, member) in members.items()}
        self._holders = holders

    def _write(self, seconds: int) -> None:
        """Say on the first shard that answers that this hub is alive."""
        self._beats += 1
        member = self.member
        texts = ", ".join(map(literal.text, (member.hub, member.name, member.address, member.secret)))
        beat = f"toUInt64(toUnixTimestamp(now())) * 1000000 + {self._beats}"
        errors: list[EngineError] = []
        for tables in self._tables:
            try:
                tables.execute(f"INSERT INTO members SELECT {texts}, {beat}, {NOW} + {seconds}")
                return
            except EngineError as error:
                errors.append(error)
        raise errors[0]


def _members(tables: Tables) -> list[tuple[int, Member]]:
    """The hubs that a shard knows of, each with the number of its last beat there."""
    found = tables.query(
        f"""SELECT hub, argMax(name, beat) AS label, argMax(address, beat) AS place, argMax(secret, beat) AS word,
            toInt64(argMax(until, beat) - {NOW}) AS left, max(beat) AS last FROM members GROUP BY hub"""
    )
    return [(last, Member(*row)) for *row, last in found.rows("hub", "label", "place", "word", "left", "last")]


def _renew(held: Lease) -> None:
    """Renew a lease, if this hub has it still and its shard answers."""
    with contextlib.suppress(EngineError):
        if held.epoch:
            held.check()
