"""The document of a trace file: its events, the names of its processes and threads, and where its clock begins."""

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepscope.wire.otlp.refusals import BadRequest

_decode = msgspec.json.Decoder().decode
_RANK = re.compile(r"\brank[\s:_#-]*(\d{1,6})\b", re.IGNORECASE)
Place = tuple[Any, Any]
"""Process and thread; ids are numbers or words."""


@dataclass(slots=True)
class Document:
    """A trace file, read but not judged."""

    events: list[Any]
    title: str = ""
    base: int = 0
    """Nanoseconds since 1970 at which its clock begins."""
    rank: int | None = None
    world_size: int = 1
    processes: dict[Any, str] = field(default_factory=dict)
    threads: dict[Place, str] = field(default_factory=dict)

    def rank_of(self, pid: Any) -> int:
        """The rank of a process: the file's own, or the one its name tells."""
        if self.rank is not None:
            return self.rank
        found = _RANK.search(self.processes.get(pid, ""))
        return int(found[1]) if found else 0


def is_chrome(data: bytes) -> bool:
    """Tell whether bytes look like a trace file of this format rather than one of OTLP."""
    head = data[:4096].lstrip()
    return head.startswith(b"[") or b'"traceEvents"' in data


def parse(data: bytes) -> Document:
    """Read a trace file; BadRequest when it is none. A list may lack its end, as Chrome's own readers allow."""
    found = _json(data)
    if isinstance(found, list):
        document = Document(found)
    elif isinstance(found, dict) and isinstance(found.get("traceEvents"), list):
        document = _described(found)
    else:
        raise BadRequest("this is no Chrome trace: it has no list of traceEvents")
    for event in document.events:
        if isinstance(event, dict) and event.get("ph") == "M":
            _name(document, event)
    return document


def _json(data: bytes) -> Any:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = data.strip()
        if text.startswith(b"[") and not text.endswith(b"]"):
            try:
                return _decode(text.rstrip(b",") + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
        raise BadRequest(f"this is no JSON: {error}") from None


def _described(found: dict[str, Any]) -> Document:
    document = Document(found["traceEvents"])
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


def _name(document: Document, event: dict[str, Any]) -> None:
    args = event.get("args")
    name = args.get("name") if isinstance(args, dict) else None
    if not isinstance(name, str):
        return
    if event.get("name") == "process_name":
        document.processes[key(event.get("pid"))] = name
    elif event.get("name") == "thread_name":
        document.threads[key(event.get("pid")), key(event.get("tid"))] = name


def key(given: Any) -> Any:
    """An id that can be looked up: a number or a word; anything else is its text."""
    return given if isinstance(given, (int, str)) else "" if given is None else str(given)
