"""Raw OTLP items, and the run, rank, step and resource they belong to."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, structs

from stepscope.model.names import ATTR_LOCAL_RANK, ATTR_RANK, ATTR_SCOPE, ATTR_STEP, ATTR_WORLD_SIZE
from stepscope.model.ports import Writer
from stepscope.model.records import FIRST_STEP, LAST_STEP, Attrs, Link, Record, SpanEvent, Value
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.names import ATTR_STEP_NAME, PLAIN_STEPS, STEPS
from stepscope.wire.otlp.replies import Rejections

Item = TypeVar("Item")

MAX_PAIRS = 10_000
"""The most key-values that are read of one list; the hub's limit is far lower."""

LATEST = 2**63 - 1
"""The latest time: stores keep nanoseconds as a signed 64-bit integer."""

NO_TRACE, NO_SPAN = bytes(16), bytes(8)
"""The ids that mean unset."""

NO_ID = b"?"
"""Marks an id that could not be read: neither valid nor unset."""

BAD_LINK = "a link without valid ids"

Scope = tuple[str, Attrs]
"""The name of a scope, and its other fields as attributes of its records."""

RawResource = tuple[Attrs, Iterable[tuple[Scope, Iterable[Item]]]]
"""The attributes of a resource, and its scopes with their items."""

RawSpan = tuple[
    bytes, bytes, bytes, str, int, int, int, Attrs, tuple[SpanEvent, ...], tuple[Link, ...], int, str, int
]  # fmt: skip
"""trace id, span id, parent id, name, kind, start, end, attrs, events, links, status code, message, flags."""

RawPoint = tuple[int, int, Value | None, Attrs, int]
"""time, start, value, attrs, flags."""

RawMetric = tuple[str, str, str, str, int, bool, Iterable[RawPoint]]
"""name, data type, unit, description, temporality, monotonic, points."""

RawLog = tuple[int, int, int, str, str, Any, Attrs, bytes, bytes, int]
"""time, observed time, severity number, severity text, event name, body, attrs, trace id, span id, flags."""

SCOPE_FIELDS = ("name", "version", "schema_url", "dropped_attributes_count")
"""The fields of a scope besides its attributes; attributes of the same names are dropped."""

SCOPE_CLASH = "an attribute of a scope that has the name of one of its fields"


def scope_of(name: str, version: str, schema_url: str, attrs: Attrs, dropped: int, refused: Rejections) -> Scope:
    """Return the fields of a scope beyond its name as `otel.scope.*` attributes of its records."""
    if clashes := [field for field in SCOPE_FIELDS if field in attrs]:
        attrs = {key: value for key, value in attrs.items() if key not in clashes}
        refused.warn(SCOPE_CLASH, clashes[0], len(clashes))
    scope_attrs = {ATTR_SCOPE + key: value for key, value in attrs.items()}
    fields = {"version": version, "schema_url": schema_url, "dropped_attributes_count": dropped}
    scope_attrs.update((ATTR_SCOPE + field, value) for field, value in fields.items() if value)
    return name, scope_attrs


def note_dropped(attrs: Attrs, *counts: tuple[str, int]) -> None:
    """Keep the counts that are not zero among the attributes."""
    for name, count in counts:
        if count:
            attrs[name] = count


def is_id(data: bytes, size: int) -> bool:
    """Return whether a trace or span id is valid: of the right length and not all zero."""
    return len(data) == size and any(data)


def read_id(text: Any, size: int) -> bytes | None:
    """Read an id in hexadecimal; None for anything that is no valid one."""
    try:
        found = bytes.fromhex(text) if isinstance(text, str) and len(text) == 2 * size else b""
    except ValueError:
        return None
    return found if is_id(found, size) else None


_AXES = {alias: None if alias in PLAIN_STEPS else alias for alias in STEPS}
_INT64 = 2**63


def take_step(attrs: Attrs) -> tuple[int | None, str | None]:
    """Remove the step with the highest precedence from the attributes; return it with the name of its axis.

    Only a whole number is a step; anything else under such a name stays an attribute.
    """
    step = attrs.get(ATTR_STEP)
    if type(step) is int and FIRST_STEP <= step <= LAST_STEP:
        del attrs[ATTR_STEP]
        return step, _name(attrs) if attrs else None
    for alias, axis in _AXES.items():
        if alias not in attrs:
            continue
        value = attrs[alias]
        if type(value) is float and value.is_integer() and abs(value) < _INT64:
            value = int(value)
        if type(value) is int and FIRST_STEP <= value <= LAST_STEP:
            del attrs[alias]
            return value, axis or _name(attrs)
    return None, None


def _name(attrs: Attrs) -> str | None:
    """Remove the axis next to a plain step."""
    name = attrs.pop(ATTR_STEP_NAME, None)
    return name if type(name) is str and name else None


MARKS = frozenset((*otlp_names.STEPS, *otlp_names.RUN_ALIASES, ATTR_RANK, "rank"))
"""Attributes of a record that identify its origin, not what it measured."""

_MOST = 2**31
_pack = msgspec.msgpack.Encoder(order="sorted").encode


class Origin(Struct, frozen=True, kw_only=True):
    """The data from which the hub creates the writer of some records."""

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
    """Sorts the records of one resource, nearly all of which have the resource's own origin."""

    __slots__ = ("_known", "_origin", "_origins", "_strength", "home")

    def __init__(self, origins: "Origins", origin: Origin, strength: int) -> None:
        self._origins = origins
        self._origin = origin
        self._strength = strength
        self._known: dict[tuple[str, int, int], list[Record]] = {}
        self.home = origins.records_of(origin)

    def sort(self, attrs: Attrs) -> tuple[list[Record], int | None, str | None]:
        """Return the origin of a record, and remove its step and the step's name from its attributes."""
        step, axis = take_step(attrs)
        if MARKS.isdisjoint(attrs):
            return self.home, step, axis
        origin = self._origin
        run = first_text(attrs, otlp_names.RUN_ALIASES[: self._strength + 1]) or origin.run
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
        experiment = self._headers.get(otlp_names.HEADER_EXPERIMENT)
        if experiment:
            resource = {**resource, otlp_names.ATTR_EXPERIMENT: experiment}
        rank = small_int(resource.get(ATTR_RANK, resource.get("rank")), 0)
        origin = Origin(
            run=run,
            project=first_text(resource, (otlp_names.ATTR_PROJECT, "service.namespace")) or _service(resource),
            name=first_text(resource, (otlp_names.ATTR_RUN_NAME,)) or None,
            attempt=max(1, small_int(resource.get(otlp_names.ATTR_ATTEMPT), 1)),
            rank=rank,
            world_size=max(rank + 1, small_int(resource.get(ATTR_WORLD_SIZE, resource.get("world_size")), 1)),
            local_rank=small_int(resource.get(ATTR_LOCAL_RANK), 0),
            host=first_text(resource, ("host.name",)),
            pid=small_int(resource.get("process.pid"), 0),
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
        for strength, alias in enumerate(otlp_names.RESOURCE_RUN_ALIASES):
            if run := first_text(resource, (alias,)):
                return run, strength
        weakest = len(otlp_names.RESOURCE_RUN_ALIASES)
        if run := self._headers.get(otlp_names.HEADER_RUN, "").strip():
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


def small_int(value: Any, default: int) -> int:
    """Read a small integer, also from text, as in resource variables."""
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 11:
        value = int(value)
    return value if type(value) is int and 0 <= value < _MOST else default


def _service(resource: Attrs) -> str:
    return first_text(resource, ("service.name",)) or "unknown_service"


def _rank_of(attrs: Attrs, origin: Origin) -> tuple[int, int]:
    """Read the rank of a record; a bare `rank` counts beside a world size only, else it may be a LoRA's."""
    if ATTR_RANK in attrs:
        rank = small_int(attrs[ATTR_RANK], origin.rank)
        world_size = small_int(attrs.get(ATTR_WORLD_SIZE), origin.world_size)
    elif "world_size" in attrs:
        rank = small_int(attrs.get("rank"), origin.rank)
        world_size = small_int(attrs["world_size"], origin.world_size)
    else:
        return origin.rank, origin.world_size
    return rank, max(world_size, rank + 1)
