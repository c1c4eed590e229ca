"""Real journals for the tests of the command line."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from stepscope.journal import layout
from stepscope.journal.segments import Journal
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
NOBODY = 2**22 + 1
"""A pid that no process has: beyond the largest the kernel gives."""


def write(home: Path, run: str, *batches: Iterable[Record], token: str = "abc", **who: Any) -> Path:
    """Write batches as one writer of a run, by default one that is dead, and return its folder."""
    fields = {"rank": 0, "attempt": 1, "host": "elsewhere", "pid": NOBODY, "wall_ns": START, "project": "gpt"}
    fields |= who
    segment_bytes = fields.pop("segment_bytes", 2**24)
    name = layout.WriterName(fields["rank"], fields["attempt"], fields["host"], fields["pid"], token)
    folder = layout.writer_folder(home, run, str(name))
    journal = Journal(folder, Writer(id=str(name), run=run, **fields), segment_bytes=segment_bytes)
    for batch in batches:
        journal.append([msgspec.msgpack.encode(record) for record in batch])
    journal.close()
    return folder


def age(folder: Path, seconds: float = 3600.0) -> None:
    """Make the segments of a writer look as if nothing was written for some time."""
    for path in layout.list_segments(folder):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def this_host() -> str:
    """This machine as writers name it."""
    return layout.slug(socket.gethostname()).replace(".", "-")


def metric(step: int | None, category: str | None = "trainer", **values: float) -> Metric:
    """The values of one step, a second after those of the step before."""
    return Metric(START + (step or 0) * SECOND, step, None, category, dict(values))


def span(name: str, number: int, duration: int | None, step: int | None = None, **rest: Any) -> Span:
    """A span; the number makes its id."""
    return Span(START, duration, step, None, b"t" * 16, number.to_bytes(8, "big"), None, name, **rest)


def later(records: Iterable[Record], seconds: int) -> list[Record]:
    """Records as if they were recorded later."""
    return [msgspec.structs.replace(record, time=record.time + seconds * SECOND) for record in records]


def event(name: str, **attrs: Any) -> Event:
    """An event without a step."""
    return Event(START + SECOND, None, None, None, None, 9, name, attrs)


def finished(status: str = "finished") -> Event:
    """The exit record of a writer."""
    return event(names.EVENT_FINISHED, status=status)


def alert(name: str, message: str = "", step: int | None = None) -> Alert:
    """An alert of severity ERROR."""
    return Alert(START + SECOND, step, None, None, None, 17, name, message)


def log(text: str) -> Log:
    """A line of severity WARN."""
    return Log(START, None, None, None, None, 13, text)
