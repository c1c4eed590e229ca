"""A trace file on its way in: recognised, read, and handed to the intake, so that it is journaled and counted."""

from collections import Counter
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from msgspec import structs

from stepscope.hub.api.params import bad
from stepscope.hub.receivers.entry import Entry, Load
from stepscope.hub.receivers.inflate import Broken, TooLarge, inflate
from stepscope.hub.refusals import Refusal, Refused
from stepscope.model.errors import Retry
from stepscope.model.records import Record, Span
from stepscope.wire.chrome import read as chrome
from stepscope.wire.chrome.events import is_chrome
from stepscope.wire.otlp.decode.origin import Group
from stepscope.wire.otlp.decode.request import decode
from stepscope.wire.otlp.refusals import BadRequest

LIMIT = 256 * 1024 * 1024
SECONDS = 60.0
_GZIP = b"\x1f\x8b"
_PART = 5000
"""Records in one batch."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a file holds."""

    format: str
    groups: list[Group]
    rejected: dict[str, int]
    ignored: dict[str, int] = field(default_factory=dict)


def read(body: bytes, run: str, project: str, now: int) -> Found:
    """Read a file of either format; Refused when it is of none."""
    try:
        data = inflate(body, "gzip", LIMIT) if body.startswith(_GZIP) else body
        if is_chrome(data):
            made = chrome.read(data, now, run=run, project=project)
            return Found("chrome", made.groups, made.rejections.reasons, made.ignored)
        return _otlp(data)
    except BadRequest as error:
        raise bad(f"the file cannot be read: {error}") from None
    except TooLarge:
        raise bad(f"the file is larger than {LIMIT} bytes when unpacked") from None
    except Broken as error:
        raise bad(str(error)) from None


def _otlp(data: bytes) -> Found:
    """A document, or one on each line as collectors write them."""
    lines = [line for line in data.splitlines() if line.strip()]
    many = len(lines) > 1 and all(line.lstrip().startswith(b'{"resourceSpans"') for line in lines)
    groups: list[Group] = []
    rejected: Counter[str] = Counter()
    for part in lines if many else [data]:
        if b'"resourceSpans"' not in part:
            raise BadRequest("it has neither resourceSpans (OTLP) nor traceEvents (Chrome)")
        found = decode("traces", "json", part)
        groups += found.groups
        rejected.update(found.rejections.reasons)
    return Found("otlp", groups, dict(rejected))


def hand_over(entry: Entry, found: Found, number: int, project: str | None) -> dict[str, Any]:
    """Give what was read to the intake and wait until it is safe; a file that comes again is stored once.

    Batches are numbered by `number`, which stands for the file's content.
    """
    load = Load()
    for reason, count in found.rejected.items():
        entry.reject(reason, count)
    for group in found.groups:
        writer = group.origin.writer()
        if project is not None:
            writer = structs.replace(writer, project=project)
        for part in range(0, len(group.records), _PART):
            records = group.records[part : part + _PART]
            entry.add(load, writer, records, project, number + part // _PART)
    try:
        entry.hand_over(load).result(SECONDS)
    except (Retry, LateError) as error:
        after = getattr(error, "after", None) or 5.0
        raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error) or "the disk is slow", after)) from None
    rejected = Counter(found.rejected) + load.rejected
    return {"format": found.format, **_summary(found.groups), "rejected": dict(+rejected), "ignored": found.ignored}


def _summary(groups: list[Group]) -> dict[str, Any]:
    records: list[Record] = [record for group in groups for record in group.records]
    spans = [record for record in records if isinstance(record, Span)]
    traces = dict.fromkeys(span.trace_id.hex() for span in spans)
    return {
        "runs": list(dict.fromkeys(group.origin.run for group in groups)),
        "traces": list(traces)[:1000],
        "spans": len(spans),
        "points": len(records) - len(spans),
    }
