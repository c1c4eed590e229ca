"""A run as the store has it: what a table of runs needs of each, and the details, which are unpacked on demand."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stepscope.hub.store.read.reductions import Reduced
from stepscope.model.records import Attrs
from stepscope.model.run_description import Description, Edit, apply


class Ending(Struct, frozen=True, gc=False, array_like=True):
    """How a process ended, as it reported."""

    rank: int
    attempt: int
    time: int
    status: str


class Latest(Struct, frozen=True, gc=False, array_like=True):
    """The last value of a metric, of so many ranks."""

    value: int | float
    step: int | None
    time: int
    ranks: int = 1
    unit: str = ""
    low: float = inf
    high: float = -inf
    """Minimum and maximum of the finite values of all ranks and attempts; +Inf and -Inf when there are none."""


class Details(Struct, frozen=True, array_like=True, gc=False):
    """What a run has besides what the table of all runs is sorted and counted by."""

    hosts: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    beginning: Attrs = {}
    """The attributes of its newest start, such as its configuration, which has later changes applied."""
    endings: tuple[Ending, ...] = ()
    recorded: Description = Description()
    """The description recorded at the start; name, notes, tags and `archived` of the row have the edits applied."""
    process_edits: tuple[Edit, ...] = ()
    """The edits that its processes recorded."""


_unpack = msgspec.msgpack.Decoder(Details).decode


class Rest(Struct, gc=False):
    """The details of a run, packed until someone looks; copies of a row share it."""

    details: Details | None = None
    packed: bytes = b""
    paths: tuple[str, ...] | None = None

    def read(self) -> Details:
        """The details."""
        if self.details is None:
            self.details = _unpack(self.packed)
        return self.details

    def pack(self) -> bytes:
        """The details packed; ValueError, TypeError or OverflowError where they hold what cannot be."""
        return self.packed or msgspec.msgpack.encode(self.read())

    def settings(self) -> tuple[str, ...]:
        """The dotted paths of the configuration."""
        if self.paths is None:
            self.paths = tuple(paths(self.read().beginning.get("config")))
        return self.paths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rest) and self.read() == other.read()


class RunRow(Struct, frozen=True, gc=False):
    """A run, summarised from what its processes recorded."""

    number: int
    id: str
    project: str
    name: str
    created: int
    started: int
    """When its first writer started, or the time of its first record if that is earlier."""
    world_size: int
    ranks: int
    attempts: int
    step: int | None
    rest: Rest
    seen: int = 0
    """The time of its latest record, by the clock of its process."""
    received: int = 0
    """When the store last took a record of it, by the hub's clock."""
    values: dict[str, Latest] = {}
    """The last values of metrics; those that are asked for later are added."""
    reduced: Mapping[str, Reduced] = {}
    """Values that were computed from points, by field; set by the caller."""
    notes: str = ""
    tags: Mapping[str, Any] = {}
    archived: bool = False
    findings: int = 0
    """How many findings it has; set by the caller together with `worst_finding`."""
    worst_finding: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its processes."""
        return self.rest.read().hosts

    @property
    def counts(self) -> Mapping[str, int]:
        """How many records of each kind it has."""
        return self.rest.read().counts

    @property
    def beginning(self) -> Attrs:
        """The attributes of its newest start, such as its configuration, which has later changes applied."""
        return self.rest.read().beginning

    @property
    def endings(self) -> tuple[Ending, ...]:
        """How its processes ended."""
        return self.rest.read().endings

    @property
    def recorded(self) -> Description:
        """The description recorded at the start, without edits."""
        return self.rest.read().recorded

    @property
    def process_edits(self) -> tuple[Edit, ...]:
        """The edits that its processes recorded."""
        return self.rest.read().process_edits

    @property
    def group(self) -> str:
        """The group that it was started in."""
        return word(self.beginning, "group")

    @property
    def job_type(self) -> str:
        """The kind of its job."""
        return word(self.beginning, "job_type")

    @property
    def parent(self) -> str:
        """The id of the run that it was forked from or continues."""
        return word(self.beginning, "parent")

    @property
    def from_step(self) -> int | None:
        """The step of the parent at which it begins."""
        return found if type(found := self.beginning.get("from_step")) is int else None

    @property
    def settings(self) -> tuple[str, ...]:
        """The dotted paths of its configuration."""
        return self.rest.settings()


def word(beginning: Attrs, key: str) -> str:
    """A text among the attributes of a start; empty for anything else."""
    found = beginning.get(key)
    return found if isinstance(found, str) else ""


def paths(settings: Any, prefix: str = "") -> list[str]:
    """The dotted paths of nested settings."""
    if not isinstance(settings, dict):
        return []
    found = []
    for name, value in settings.items():
        inside = paths(value, f"{prefix}{name}.")
        found += inside or [f"{prefix}{name}"]
    return found


def edited(row: RunRow, edits: Sequence[Edit]) -> RunRow:
    """Return a row with the edits of users applied, in order of time with those of its processes."""
    if not edits:
        return row
    now = apply(row.recorded, [*row.process_edits, *edits])
    return replace(row, name=now.name or "", notes=now.notes, tags=now.tags, archived=now.archived)
