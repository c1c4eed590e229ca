"""The interface of formats for files of spans, and what a file holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stepscope.model.ports import Writer
from stepscope.model.records import Span
from stepscope.wire.otlp.decode.origin import Group as Group
from stepscope.wire.otlp.decode.request_limits import bound_values as bound_values
from stepscope.wire.otlp.replies import BadRequest as BadRequest

SpanBatch = tuple[Writer, Sequence[Span]]
"""Spans, and the process that recorded them."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The content of a trace file."""

    groups: list[Group]
    rejected: dict[str, int]
    ignored: dict[str, int] = field(default_factory=dict)


class TraceFormat(Protocol):
    """A format of trace files: the part `trace_format` of a dialect."""

    sign: str
    """What a file of this format has, for messages, such as `traceEvents (Chrome)`."""
    lossless: bool
    """Whether a file keeps all that a span has; the first such format is the default of exports."""

    def matches(self, data: bytes) -> bool:
        """Return whether bytes look like a file of this format."""

    def write(self, title: str, batches: Sequence[SpanBatch]) -> Iterator[bytes]:
        """Write one file."""

    def read(self, data: bytes, now: int, run: str, project: str) -> TraceFile:
        """Read a file; BadRequest says why it cannot be read. `run` and `project` are for formats without them."""
