"""A trace file on its way in: recognised, read, and handed to the intake, so that it is journaled and counted."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from msgspec import structs

from stepscope.hub.questions.known_spans import Id
from stepscope.hub.questions.params import bad
from stepscope.hub.receivers.bodies import Broken, TooLarge, inflate
from stepscope.hub.receivers.ingest import Ingest, Upload
from stepscope.hub.refusals import Refusal, Refused
from stepscope.model.errors import Retry
from stepscope.model.records import Record, Span
from stepscope.wire.chrome import chrome_files as chrome
from stepscope.wire.chrome.chrome_events import is_chrome
from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.decode.origin import Group
from stepscope.wire.otlp.decode.request_limits import bound_values
from stepscope.wire.otlp.replies import BadRequest

LIMIT = 256 * 1024 * 1024
MOST_VALUES = 16_000_000
"""Values of the JSON: a trace of 200,000 spans with ten attributes each, as we write it, has 10 million."""
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
        bound_values(data, MOST_VALUES)
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
    """A document, or one on each line as collectors write them; what one process sent on many lines is one group."""
    lines = [line for line in data.splitlines() if line.strip()]
    many = len(lines) > 1 and all(line.lstrip().startswith(b'{"resourceSpans"') for line in lines)
    groups: dict[str, Group] = {}
    rejected: Counter[str] = Counter()
    for part in lines if many else [data]:
        if b'"resourceSpans"' not in part:
            raise BadRequest(_neither(part))
        found = decode("traces", "json", part)
        for group in found.groups:
            groups.setdefault(group.origin.key, Group(group.origin, [])).records.extend(group.records)
        rejected.update(found.rejections.reasons)
    return Found("otlp", list(groups.values()), dict(rejected))


def _neither(data: bytes) -> str:
    """What is wrong with a file that names nothing we know: where its JSON breaks, if it does."""
    try:
        json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"
    return "it has neither resourceSpans (OTLP) nor traceEvents (Chrome)"


Known = Callable[[Sequence[Span]], Mapping[Id, Iterable[str]]]
"""Tells the runs in which spans are stored already."""


def submit(entry: Ingest, found: Found, number: int, project: str | None, known: Known) -> dict[str, Any]:
    """Give what is new of a file to the intake and wait until it is safe; a span comes into the store once.

    Batches are numbered by `number`, which stands for the file's content: they are stored once, too.
    """
    upload = Upload()
    for reason, count in found.rejected.items():
        entry.reject(reason, count)
    sifted = _Sifted(known)
    for group in found.groups:
        writer = group.origin.writer()
        if project is not None:
            writer = structs.replace(writer, project=project)
        for part in range(0, len(group.records), _PART):
            records = sifted.take(group.origin.run, group.records[part : part + _PART])
            if records:
                entry.add(upload, writer, records, project, number + part // _PART)
    try:
        entry.submit(upload).result(SECONDS)
    except (Retry, LateError) as error:
        after = getattr(error, "after", None) or 5.0
        raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error) or "the disk is slow", after)) from None
    rejected = Counter(found.rejected) + upload.rejected
    told = {"format": found.format, **sifted.told(), "rejected": dict(+rejected), "ignored": found.ignored}
    return {**told, "traces": _traces(found.groups)}


class _Sifted:
    """What of a file is new, and where all of it is to be found."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._met: set[tuple[Id, bool]] = set()
        self._runs: dict[str, None] = {}
        self._steps: dict[str, set[int]] = {}
        self._spans = self._points = self._already = 0

    def take(self, run: str, records: Sequence[Record]) -> list[Record]:
        """The records that are new: no span that is stored, or that the file had before."""
        known = self._known([record for record in records if isinstance(record, Span)])
        new: list[Record] = []
        for record in records:
            if not isinstance(record, Span):
                self._points += 1
                new.append(record)
                continue
            id = record.trace_id, record.span_id
            places, met = list(known.get(id, ())), (id, record.duration is None)
            if places or met in self._met:
                self._already += 1
            else:
                self._spans += 1
                new.append(record)
            self._met.add(met)
            self._note(places or [run], record.step)
        if new:
            self._runs[run] = None
        return new

    def _note(self, runs: Iterable[str], step: int | None) -> None:
        for run in runs:
            self._runs[run] = None
            if step is not None:
                self._steps.setdefault(run, set()).add(step)

    def told(self) -> dict[str, Any]:
        """The runs, with the steps that the file has of each, and how much was taken."""
        steps = [{"run": run, "first_step": min(steps), "last_step": max(steps)} for run, steps in self._steps.items()]
        counts = {"spans": self._spans, "already": self._already, "points": self._points}
        return {"runs": list(self._runs), "steps": steps, **counts}


def _traces(groups: Sequence[Group]) -> list[str]:
    spans = (record for group in groups for record in group.records if isinstance(record, Span))
    return list(dict.fromkeys(span.trace_id.hex() for span in spans))[:1000]
