"""The hubs on a shared store: who is alive, and which shards each of them may write to."""

import contextlib
import math
import os
import secrets
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

from stepscope.hub.store import lease, literal, schema
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.lease import BEATS, LEASE_SECONDS, NOW, Fenced, Holder, Lease
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
        self._engine = engine
        self.member = member
        self._seconds = seconds
        self._lock = threading.Lock()
        self._beats = 0
        self._holders: dict[int, Holder] = {}
        self._members: dict[str, Member] = {}
        self.leases = [Lease(engine, shard, member.hub, member.name, seconds) for shard in range(engine.shards)]
        lease.prepare(engine)
        schema.create(engine, "members", _TABLE)

    @property
    def beat_seconds(self) -> float:
        """How often `beat` is to be called."""
        return self._seconds / BEATS

    def take_all(self) -> None:
        """Take every shard; ConfigError while another hub has one."""
        self._read()
        for held in self._holders.values():
            if held.hub != self.member.hub and held.left > 0:
                raise ConfigError(f"another hub ({held.name}) has this store, for {held.left} s more: stop it first")
        for each in self.leases:
            if not each.take(self._holders.get(each.shard)):
                raise ConfigError("another hub took the store over")
        self._read()

    def join(self) -> None:
        """Count as alive from now on, and take the shards that are free."""
        self.beat()

    def beat(self) -> list[int]:
        """Stay alive, renew the leases, take free shards up to a fair share; the shards that are to be released."""
        with self._lock:
            self._write(self._seconds)
            for each in self.leases:
                _renew(each)
            self._read()
            fair = math.ceil(len(self.leases) / max(len(self.living()), 1))
            for each in self.leases:
                held = self._holders.get(each.shard)
                free = held is None or held.left <= 0 or held.hub == self.member.hub
                if not each.epoch and free and len(self.held()) < fair:
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
            return Retry(f"no hub writes to shard {shard} of the store at present", after=1.0)
        return owner

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
        found = self._engine.query(
            f"""SELECT hub, argMax(name, beat) AS label, argMax(address, beat) AS place, argMax(secret, beat) AS word,
                toInt64(argMax(until, beat) - {NOW}) AS left FROM members GROUP BY hub"""
        )
        self._members = {row[0]: Member(*row) for row in found.rows("hub", "label", "place", "word", "left")}
        self._holders = lease.holders(self._engine)

    def _write(self, seconds: int) -> None:
        self._beats += 1
        member = self.member
        texts = ", ".join(map(literal.text, (member.hub, member.name, member.address, member.secret)))
        beat = f"toUInt64(toUnixTimestamp(now())) * 1000000 + {self._beats}"
        self._engine.execute(f"INSERT INTO members SELECT {texts}, {beat}, {NOW} + {seconds}")


def _renew(held: Lease) -> None:
    """Renew a lease, if this hub has it still."""
    with contextlib.suppress(Fenced):
        if held.epoch:
            held.check()
