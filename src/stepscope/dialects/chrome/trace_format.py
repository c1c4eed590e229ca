"""Chrome's trace files as a format of exports and imports."""

from collections.abc import Iterator, Sequence

from stepscope.dialects.chrome.wire import files
from stepscope.dialects.chrome.wire.events import is_chrome
from stepscope.model.records import Span
from stepscope.wire.trace_format import SpanBatch, TraceFile


class ChromeFormat:
    """One lane for each rank and attempt of a run."""

    sign = "traceEvents (Chrome)"
    lossless = False

    def matches(self, data: bytes) -> bool:
        """Return whether bytes look like such a file."""
        return is_chrome(data)

    def write(self, title: str, batches: Sequence[SpanBatch]) -> Iterator[bytes]:
        """Write one file."""
        grouped: dict[tuple[str, int, int], list[Span]] = {}
        for writer, spans in batches:
            grouped.setdefault((writer.run, writer.rank, writer.attempt), []).extend(spans)
        lanes = [files.Lane(run, rank, spans) for (run, rank, _), spans in sorted(grouped.items())]
        return files.write(title, lanes)

    def read(self, data: bytes, now: int, run: str, project: str) -> TraceFile:
        """Read a file."""
        made = files.read(data, now, run=run, project=project)
        return TraceFile(made.groups, made.rejections.reasons, made.ignored)
