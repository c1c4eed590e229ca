"""Where decoded records come from: the run, rank and resource that become a writer."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from stepscope.model.names import ATTR_LOCAL_RANK, ATTR_RANK, ATTR_WORLD_SIZE
from stepscope.model.records import Attrs, Record
from stepscope.model.writer import Writer
from stepscope.wire.otlp import names
from stepscope.wire.otlp.decode.steps import take_step

MARKS = frozenset((*names.STEPS, *names.RUN_ALIASES, ATTR_RANK, "rank"))
"""Attributes of a record that say more about it than about what it measured."""

_MOST = 2**31
_pack = msgspec.msgpack.Encoder(order="sorted").encode


class Origin(Struct, frozen=True, kw_only=True):
    """What a hub must know to make the writer of some records."""

    run: str
    project: str
    name: str | None = None
    attempt: int = 1
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    host: str = ""
    pid: int = 0
    resource: Attrs = {}

    @property
    def key(self) -> str:
        """The same for every request with one resource in one attempt of a run; safe as a file name."""
        parts = _pack((self.run, self.project, self.rank, self.attempt, self.resource))
        return hashlib.blake2b(parts, digest_size=16).hexdigest()

    def writer(self, wall_ns: int = 0) -> Writer:
        """Make the writer of these records."""
        return Writer(
            id=self.key,
            run=self.run,
            project=self.project,
            name=self.name,
            attempt=self.attempt,
            rank=self.rank,
            world_size=self.world_size,
            local_rank=self.local_rank,
            host=self.host,
            pid=self.pid,
            wall_ns=wall_ns,
            resource=self.resource,
        )


class Group(NamedTuple):
    """Records of one origin, in the order they came."""

    origin: Origin
    records: list[Record]


class Place:
    """Sorts the records of one resource, nearly all of which are at home with the resource's own origin."""

    __slots__ = ("_known", "_origin", "_origins", "_strength", "home")

    def __init__(self, origins: "Origins", origin: Origin, strength: int) -> None:
        self._origins = origins
        self._origin = origin
        self._strength = strength
        self._known: dict[tuple[str, int, int], list[Record]] = {}
        self.home = origins.records_of(origin)

    def sort(self, attrs: Attrs) -> tuple[list[Record], int | None, str | None]:
        """Tell where a record belongs, and take its step and the step's name out of its attributes."""
        step, axis = take_step(attrs)
        if MARKS.isdisjoint(attrs):
            return self.home, step, axis
        origin = self._origin
        run = first_text(attrs, names.RUN_ALIASES[: self._strength + 1]) or origin.run
        rank, world_size = _rank_of(attrs, origin)
        if run == origin.run and rank == origin.rank:
            return self.home, step, axis
        known = self._known.get((run, rank, world_size))
        if known is None:
            name = origin.name if run == origin.run else None
            other = structs.replace(origin, run=run, name=name, rank=rank, world_size=world_size)
            known = self._known[run, rank, world_size] = self._origins.records_of(other)
        return known, step, axis


class Origins:
    """The groups of one request; resources that describe the same process share one."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._groups: dict[str, Group] = {}

    def enter(self, resource: Attrs) -> Place:
        """Recognise the origin of a resource."""
        run, strength = self._run_of(resource)
        experiment = self._headers.get(names.HEADER_EXPERIMENT)
        if experiment:
            resource = {**resource, names.ATTR_EXPERIMENT: experiment}
        rank = whole(resource.get(ATTR_RANK, resource.get("rank")), 0)
        origin = Origin(
            run=run,
            project=first_text(resource, (names.ATTR_PROJECT, "service.namespace")) or _service(resource),
            name=first_text(resource, (names.ATTR_RUN_NAME,)) or None,
            attempt=max(1, whole(resource.get(names.ATTR_ATTEMPT), 1)),
            rank=rank,
            world_size=max(rank + 1, whole(resource.get(ATTR_WORLD_SIZE, resource.get("world_size")), 1)),
            local_rank=whole(resource.get(ATTR_LOCAL_RANK), 0),
            host=first_text(resource, ("host.name",)),
            pid=whole(resource.get("process.pid"), 0),
            resource=resource,
        )
        return Place(self, origin, strength)

    def records_of(self, origin: Origin) -> list[Record]:
        """Find the list that collects the records of an origin."""
        group = self._groups.get(key := origin.key)
        if group is None:
            group = self._groups[key] = Group(origin, [])
        return group.records

    def groups(self) -> list[Group]:
        """List the groups that have records."""
        return [group for group in self._groups.values() if group.records]

    def _run_of(self, resource: Attrs) -> tuple[str, int]:
        for strength, alias in enumerate(names.RESOURCE_RUN_ALIASES):
            if run := first_text(resource, (alias,)):
                return run, strength
        weakest = len(names.RESOURCE_RUN_ALIASES)
        if run := self._headers.get(names.HEADER_RUN, "").strip():
            return run, weakest
        instance = first_text(resource, ("service.instance.id",)) or "-".join(
            text for key in ("host.name", "process.pid") if (text := first_text(resource, (key,)))
        )
        service = _service(resource)
        return (f"{service}-{instance}" if instance else service), weakest


def first_text(attrs: Attrs, keys: tuple[str, ...]) -> str:
    """Read the first of some attributes that holds a text or a whole number; empty when none does."""
    for key in keys:
        value = attrs.get(key)
        if type(value) is int:
            return str(value)
        if type(value) is str and (text := value.strip()):
            return text
    return ""


def whole(value: Any, default: int) -> int:
    """Read a small whole number, also from text, as the resource variables carry it."""
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 11:
        value = int(value)
    return value if type(value) is int and 0 <= value < _MOST else default


def _service(resource: Attrs) -> str:
    return first_text(resource, ("service.name",)) or "unknown_service"


def _rank_of(attrs: Attrs, origin: Origin) -> tuple[int, int]:
    """Read the rank of a record; a bare `rank` counts beside a world size only, else it may be a LoRA's."""
    if ATTR_RANK in attrs:
        rank = whole(attrs[ATTR_RANK], origin.rank)
        world_size = whole(attrs.get(ATTR_WORLD_SIZE), origin.world_size)
    elif "world_size" in attrs:
        rank = whole(attrs.get("rank"), origin.rank)
        world_size = whole(attrs["world_size"], origin.world_size)
    else:
        return origin.rank, origin.world_size
    return rank, max(world_size, rank + 1)
