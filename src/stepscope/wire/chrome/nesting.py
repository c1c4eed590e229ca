"""Which span is inside which: parents by time within a thread, and threads for spans that overlap."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.model.records import Attrs, Link, Span


@dataclass(slots=True)
class Draft:
    """A span in the making. `apart` ones overlap others of their thread; `instant` ones belong to what is around."""

    name: str
    place: tuple[Any, Any]
    time: int
    duration: int | None
    attrs: Attrs
    id: bytes
    apart: bool = False
    instant: bool = False
    known: bool = False
    """Its ids were told, so its parent is not to be found by time; an instant's parent is the span that has it."""
    trace_id: bytes = b""
    parent: bytes | None = None
    step: int | None = None
    axis: str | None = None
    kind: int = 0
    status: int = 0
    message: str = ""
    scope: str = ""
    flags: int = 0
    links: tuple[Link, ...] = ()
    instants: "list[Draft]" = field(default_factory=list)


def nest(drafts: Sequence[Draft]) -> list[Draft]:
    """Give drafts their parents and steps; an instant inside a span becomes an event of it and is left out."""
    owners = {(draft.trace_id, draft.id): draft for draft in drafts if not draft.instant}
    threads: dict[tuple[Any, Any], list[Draft]] = {}
    inside: set[int] = set()
    for draft in drafts:
        owner = owners.get((draft.trace_id, draft.parent or b"")) if draft.instant and draft.known else None
        if owner is None:
            threads.setdefault(draft.place, []).append(draft)
        else:
            owner.instants.append(draft)
            inside.add(id(draft))
    for thread in threads.values():
        _nest_thread(thread, inside)
    return [draft for draft in drafts if id(draft) not in inside]


def _nest_thread(thread: list[Draft], inside: set[int]) -> None:
    around: list[tuple[int, Draft]] = []
    for draft in sorted(thread, key=_order):
        end = _end(draft)
        while around and not (around[-1][0] >= end and around[-1][0] > draft.time):
            around.pop()
        parent = around[-1][1] if around else None
        if parent is not None:
            if draft.instant:
                parent.instants.append(draft)
                inside.add(id(draft))
                continue
            if not draft.apart and not draft.known:
                draft.parent = parent.id
            if draft.step is None and not draft.known:
                draft.step, draft.axis = parent.step, parent.axis
        if not draft.apart and not draft.instant:
            around.append((end, draft))


_NEVER = 2**63


def _end(draft: Draft) -> int:
    return _NEVER if draft.duration is None else draft.time + draft.duration


def _order(draft: Draft) -> tuple[int, int, int]:
    """The outer before the inner, also where both begin together; an instant after what it is in."""
    return draft.time, int(draft.instant), -_end(draft)


def threads_of(spans: Iterable[Span]) -> list[int]:
    """Number threads so that on each, spans nest: the first on which a span is inside all that go on."""
    ordered = sorted(enumerate(spans), key=lambda each: (each[1].time, -(each[1].duration or 0)))
    stacks: list[list[int]] = []
    found = [0] * len(ordered)
    for index, span in ordered:
        end = span.time + (span.duration or 0)
        for number, stack in enumerate(stacks):
            while stack and stack[-1] <= span.time:
                stack.pop()
            if not stack or stack[-1] >= end:
                stack.append(end)
                found[index] = number
                break
        else:
            stacks.append([end])
            found[index] = len(stacks) - 1
    return found
