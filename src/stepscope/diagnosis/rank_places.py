"""Where the ranks of a hung run are: from their open spans, and from the reports of processes that stand still."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stepscope.diagnosis.ending import ranks_in_words
from stepscope.diagnosis.span_names import traits
from stepscope.model.records import Event

MAX_CHARACTERS = 20_000
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen")
_PREFIX = "train.collective."
_BACKWARD = "_engine_run_backward"


class Collective(NamedTuple):
    """A collective that a rank is in; None for what is not known."""

    name: str
    numel: int | None = None
    dtype: str | None = None

    def in_words(self) -> str:
        """Describe it for a sentence."""
        size = "" if self.numel is None else f" of {self.numel} {self.dtype or 'values'}"
        return f"{self.name}{size}"


@dataclass(frozen=True, slots=True)
class Position:
    """A report of a process that stands still."""

    time: int
    stack: tuple[str, ...] = ()
    collective: Collective | None = None
    begun: Mapping[str, int] = field(default_factory=dict)
    """How many collectives each of its process groups has begun."""
    recent: tuple[tuple[str, int, Collective], ...] = ()
    """The last collectives that were called: group, number in the group, and what it was."""

    @property
    def in_backward(self) -> bool:
        """Whether it is in a backward pass, in which DDP and FSDP wait for other ranks."""
        return bool(self.stack) and self.stack[-1].endswith(f" {_BACKWARD}")

    @property
    def place(self) -> str:
        """The innermost line of the program itself, else of a library."""
        own = [line for line in self.stack if not any(part in line for part in _LIBRARIES)]
        line = (own or self.stack or ("",))[-1]
        where, _, function = line.rpartition(" ")
        file = where.rpartition("/")[2]
        return f"{file} in {function}" if file else ""


def position_of(event: Event) -> Position:
    """Read a report, whatever it holds."""
    attrs = event.attrs
    stack = str(attrs.get("stack") or "")[:MAX_CHARACTERS]
    groups = attrs.get("groups")
    begun = {
        str(name): int(each["begun"])
        for name, each in (groups.items() if isinstance(groups, dict) else ())
        if isinstance(each, dict) and isinstance(each.get("begun"), int)
    }
    at = attrs.get("collective")
    recent = attrs.get("recent")
    called = [
        (str(each[0]), each[1], Collective(str(each[2]), each[3], str(each[4])))
        for each in (recent if isinstance(recent, (list, tuple)) else ())
        if isinstance(each, (list, tuple)) and len(each) == 5 and isinstance(each[1], int)
    ]
    return Position(
        event.time,
        tuple(stack.split("\n")) if stack else (),
        Collective(str(at["name"]), at.get("numel"), at.get("dtype"))
        if isinstance(at, dict) and "name" in at
        else None,
        begun,
        tuple(called[-16:]),
    )


class Place(NamedTuple):
    """Where a rank is: its innermost open span and its report, if any."""

    span: str | None = None
    position: Position | None = None

    @property
    def known(self) -> bool:
        """Whether the rank has reported anything."""
        return self.span is not None or self.position is not None

    @property
    def collective(self) -> Collective | None:
        """The collective it is in."""
        if self.position is not None and self.position.collective is not None:
            return self.position.collective
        if self.span is not None and traits(self.span).waiting:
            return Collective(self.span.removeprefix(_PREFIX))
        return None

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks."""
        if self.collective is not None:
            return True
        return self.position is not None and self.position.in_backward and bool(self.position.begun)

    @property
    def waits_in(self) -> str:
        """What it waits in, for a sentence."""
        if self.span is not None and traits(self.span).waiting:
            return self.span
        return self.collective.name if self.collective is not None else "backward"

    @property
    def where(self) -> str:
        """Where it is, for a sentence."""
        line = self.position.place if self.position is not None else ""
        return ", ".join(
            part for part in (f"in {self.span}" if self.span else "", f"at {line}" if line else "") if part
        )


def behind(places: Mapping[int, Place]) -> tuple[int, ...]:
    """Return the ranks that have begun fewer collectives than most; empty when all have begun as many."""
    groups: dict[str, dict[int, int]] = {}
    for rank, place in places.items():
        for name, begun in (place.position.begun if place.position is not None else {}).items():
            groups.setdefault(name, {})[rank] = begun
    for counts in groups.values():
        least, most = min(counts.values()), max(counts.values())
        late = tuple(sorted(rank for rank, begun in counts.items() if begun == least))
        if least < most and 2 * len(late) < len(counts):
            return late
    return ()


def ahead(places: Mapping[int, Place]) -> tuple[int, ...]:
    """Return the ranks that have begun more collectives than most: these went on where the others wait."""
    mirrored = {}
    for rank, place in places.items():
        if place.position is not None:
            begun = {name: -count for name, count in place.position.begun.items()}
            mirrored[rank] = Place(position=Position(0, begun=begun))
    return behind(mirrored)


def odd_ones(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks whose value is not that of most; empty when most of them do not agree."""
    if len(values) < 2:
        return ()
    usual, count = Counter(values.values()).most_common(1)[0]
    odd = tuple(sorted(rank for rank, value in values.items() if value != usual))
    return odd if 2 * count > len(values) else ()


def mismatched(places: Mapping[int, Place]) -> dict[int, Collective]:
    """Return the collective of each rank when they do not fit together; empty when they do, or that is unknown."""
    inside = {rank: each for rank, place in places.items() if (each := place.collective) is not None}
    if len(inside) < len(places):
        return {}
    if len({each.name for each in inside.values()}) > 1:
        gone_on = ahead(places)
        return {**inside, **{rank: each for rank in gone_on if (each := _called_before(places, rank)) is not None}}
    if len({(each.numel, each.dtype) for each in inside.values()}) > 1 and all(each.dtype for each in inside.values()):
        return inside
    return {}


def _called_before(places: Mapping[int, Place], rank: int) -> Collective | None:
    """Return what a rank that went on called where the others wait."""
    position = places[rank].position
    others = [each.position for at, each in places.items() if at != rank and each.position is not None]
    numbers = [each.recent[-1][1] for each in others if each.recent]
    if position is None or not numbers:
        return None
    return next((what for _, number, what in position.recent if number == min(numbers)), None)


def stacks_in_words(places: Mapping[int, Place]) -> list[str]:
    """Return the stacks of the ranks, folded: one line for those that are at the same place."""
    alike: dict[str, list[int]] = {}
    for rank in sorted(places):
        position = places[rank].position
        if position is not None and position.stack:
            alike.setdefault(" > ".join(map(_short, position.stack[-6:])), []).append(rank)
    return [
        f"{ranks_in_words(ranks)}: {stack}" for stack, ranks in sorted(alike.items(), key=lambda each: len(each[1]))
    ]


def _short(line: str) -> str:
    where, _, function = line.rpartition(" ")
    return f"{where.rpartition('/')[2]} {function}"


def silent(last: Mapping[int, int], ranks: Iterable[int], since: int) -> tuple[int, ...]:
    """Return the ranks of which nothing, not even a heartbeat, has come since a time."""
    return tuple(rank for rank in ranks if last.get(rank, 0) < since)
