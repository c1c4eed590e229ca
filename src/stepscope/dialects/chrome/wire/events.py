"""Events of a Chrome trace, Stepscope's own fields in them, and the nesting of spans."""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepscope.model.records import Attrs, Link, Span
from stepscope.wire.otlp.decode.json_request import PART_BYTES, iter_elements, load_in_parts
from stepscope.wire.otlp.decode.origin import read_id
from stepscope.wire.otlp.replies import BadRequest
from stepscope.wire.plain import plain

_RANK = re.compile(r"\brank[\s:_#-]*(\d{1,6})\b", re.IGNORECASE)
Place = tuple[Any, Any]
"""Process and thread; ids are numbers or words."""


@dataclass(slots=True)
class Document:
    """A trace file; its events are parsed as they are read, and not validated yet."""

    events: Iterator[Any]
    title: str = ""
    base: int = 0
    """Nanoseconds since 1970 at which its clock begins."""
    rank: int | None = None
    world_size: int = 1
    processes: dict[Any, str] = field(default_factory=dict)
    threads: dict[Place, str] = field(default_factory=dict)

    def rank_of(self, pid: Any) -> int:
        """The rank of a process: from the file's metadata, or from the process name."""
        if self.rank is not None:
            return self.rank
        found = _RANK.search(self.processes.get(pid, ""))
        return int(found[1]) if found else 0


def is_chrome(data: bytes) -> bool:
    """Return whether bytes look like a trace file of this format rather than OTLP."""
    head = data[:4096].lstrip()
    return head.startswith(b"[") or b'"traceEvents"' in data


def parse(data: bytes) -> Document:
    """Parse a trace file; BadRequest for anything else. A list may lack its end, as Chrome's own readers allow."""
    try:
        return _open(data)
    except (ValueError, RecursionError) as error:
        text = data.strip()
        if text.startswith(b"[") and not text.endswith(b"]"):
            try:
                return _open(text.rstrip(b",") + b"]")
            except (ValueError, RecursionError):
                pass
        raise BadRequest(f"not JSON: {error}") from None


def _open(data: bytes) -> Document:
    if len(data) > PART_BYTES:
        return _open_large(data)
    found = load_in_parts(data)
    if isinstance(found, list):
        return Document(iter(found))
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise BadRequest(_NO_EVENTS)
    return _described(found, iter(found["traceEvents"]))


def _open_large(data: bytes) -> Document:
    """Split the file into its events, each of which is parsed when it is read."""
    if data[:64].lstrip()[:1] == b"[":
        return Document(iter_elements(_elements(data), len(data)))
    fields = _fields(data)
    events = fields.pop("traceEvents", msgspec.Raw(b"null"))
    if not bytes(memoryview(events)[:64]).lstrip().startswith(b"["):
        raise BadRequest(_NO_EVENTS)
    head = {name: load_in_parts(part) for name, part in fields.items()}
    return _described(head, iter_elements(_elements(events), len(data)))


_NO_EVENTS = "not a Chrome trace: it has no list of traceEvents"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _described(found: dict[str, Any], events: Iterator[Any]) -> Document:
    document = Document(events)
    title, base, ranks = found.get("traceName"), found.get("baseTimeNanoseconds"), found.get("distributedInfo")
    if isinstance(title, str):
        document.title = title
    if isinstance(base, (int, float)) and 0 < base < 2**62:
        document.base = int(base)
    if isinstance(ranks, dict) and type(ranks.get("rank")) is int and 0 <= ranks["rank"] < 2**31:
        document.rank = ranks["rank"]
        size = ranks.get("world_size")
        document.world_size = size if type(size) is int and 0 < size < 2**31 else 1
    return document


def take_name(document: Document, event: dict[str, Any]) -> None:
    """Keep the name of a process or a thread that a metadata event gives."""
    args = event.get("args")
    name = args.get("name") if isinstance(args, dict) else None
    if not isinstance(name, str):
        return
    if event.get("name") == "process_name":
        document.processes[key(event.get("pid"))] = name
    elif event.get("name") == "thread_name":
        document.threads[key(event.get("pid")), key(event.get("tid"))] = name


def key(given: Any) -> Any:
    """A hashable id: a number or a string; anything else becomes its text."""
    return given if isinstance(given, (int, str)) else "" if given is None else str(given)


OWN_FIELDS = "stepscope"
"""The argument that holds Stepscope's fields."""
_STATUSES = ("unset", "ok", "error")


def span_fields(span: Span) -> Attrs:
    """Collect the fields of a span, without unset ones."""
    found = {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_id.hex() if span.parent_id else None,
        "step": span.step,
        "axis": span.axis,
        "kind": span.span_kind,
        "status": _STATUSES[min(span.status, 2)] if span.status else None,
        "message": span.message,
        "scope": span.scope,
        "flags": span.flags,
        "links": [
            {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), **attr_args(link.attrs)}
            for link in span.links
        ],
    }
    return {name: value for name, value in found.items() if value or (value == 0 and name == "step")}


def attr_args(attrs: Attrs) -> Attrs:
    """Write attributes for JSON, and packed as bytes where JSON cannot hold a value, such as NaN."""
    shown = plain(attrs)
    found: Attrs = {"attrs": shown} if attrs else {}
    if shown != attrs:
        found["packed"] = base64.b64encode(msgspec.msgpack.encode(attrs)).decode()
    return found


def read_attrs(shown: Any, packed: Any) -> Attrs:
    """Read attributes: the packed ones where present, else those of JSON."""
    if isinstance(packed, str):
        try:
            return msgspec.msgpack.decode(base64.b64decode(packed, validate=True), type=dict[str, Any])
        except (ValueError, msgspec.MsgspecError, RecursionError):
            pass
    return dict(shown) if isinstance(shown, dict) else {}


def status_number(given: Any) -> int:
    """Read a status; 0 if invalid."""
    return _STATUSES.index(given) if isinstance(given, str) and given in _STATUSES else 0


def small_number(given: Any, most: int) -> int:
    """Read an integer from 0 to `most`; 0 if invalid."""
    return given if type(given) is int and 0 <= given <= most else 0


def text_of(given: Any) -> str:
    """Read a text; empty if invalid."""
    return given if isinstance(given, str) else ""


def read_links(given: Any) -> tuple[Link, ...]:
    """Read links; one without valid ids is left out."""
    found: Sequence[Any] = given if isinstance(given, list) else ()
    made = []
    for each in found:
        fields = each if isinstance(each, dict) else {}
        trace, span = read_id(fields.get("trace_id"), 16), read_id(fields.get("span_id"), 8)
        if trace is not None and span is not None:
            made.append(Link(trace, span, read_attrs(fields.get("attrs"), fields.get("packed"))))
    return tuple(made)


@dataclass(slots=True)
class Draft:
    """A span under construction. `apart` ones overlap others of their thread; an `instant` is inside a span."""

    name: str
    place: tuple[Any, Any]
    time: int
    duration: int | None
    attrs: Attrs
    id: bytes
    apart: bool = False
    instant: bool = False
    known: bool = False
    """Whether its ids are given, so that its parent is not inferred from times."""
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
    instants: "list[Draft] | None" = None
    """Those inside it; most have none."""

    def hold(self, instant: "Draft") -> None:
        """Add an instant that is inside it."""
        if self.instants is None:
            self.instants = []
        self.instants.append(instant)


def nest(drafts: Sequence[Draft]) -> list[Draft]:
    """Assign parents and steps to drafts; an instant inside a span becomes an event of it and is removed."""
    given = any(draft.instant and draft.known for draft in drafts)
    owners = {(draft.trace_id, draft.id): draft for draft in drafts if not draft.instant} if given else {}
    threads: dict[tuple[Any, Any], list[Draft]] = {}
    inside: set[int] = set()
    for draft in drafts:
        owner = owners.get((draft.trace_id, draft.parent or b"")) if draft.instant and draft.known else None
        if owner is None:
            threads.setdefault(draft.place, []).append(draft)
        else:
            owner.hold(draft)
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
                parent.hold(draft)
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
    """Sort key: outer spans before inner ones, also where both start together; instants after the span around them."""
    return draft.time, int(draft.instant), -_end(draft)


def threads_of(spans: Iterable[Span]) -> list[int]:
    """Assign threads so that spans nest on each: the first thread on which a span is inside all open ones."""
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
