"""OTLP's JSON as a format of exports and imports."""

from collections import Counter
from collections.abc import Iterator, Sequence

from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.decode.json_request import split_spans
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.encode.to_json import to_json
from stepscope.wire.trace_format import BadRequest, Group, SpanBatch, TraceFile

_BATCH = 5000
"""Spans that are decoded at once."""
_START = b'{"resourceSpans":['


class OtlpFormat:
    """A document, or one on each line as collectors write them."""

    sign = "resourceSpans (OTLP)"
    lossless = True

    def matches(self, data: bytes) -> bool:
        """Return whether bytes look like such a file."""
        return b'"resourceSpans"' in data

    def write(self, title: str, batches: Sequence[SpanBatch]) -> Iterator[bytes]:
        """Write one document: the lists of all requests joined."""
        yield _START
        for number, request in enumerate(encode(batches).requests):
            inside = to_json("traces", request.body).removeprefix(_START).removesuffix(b"]}")
            yield (b",\n" if number else b"") + inside
        yield b"]}\n"

    def read(self, data: bytes, now: int, run: str, project: str) -> TraceFile:
        """Read a file; what one process sent on many lines is one group."""
        lines = [line for line in data.splitlines() if line.strip()]
        many = len(lines) > 1 and all(line.lstrip().startswith(b'{"resourceSpans"') for line in lines)
        groups: dict[str, Group] = {}
        rejected: Counter[str] = Counter()
        for part in lines if many else split_spans(data, _BATCH):
            if b'"resourceSpans"' not in part:
                raise BadRequest(f"a part of it has no {self.sign}")
            found = decode("traces", "json", part)
            for group in found.groups:
                groups.setdefault(group.origin.key, Group(group.origin, [])).records.extend(group.records)
            rejected.update(found.rejections.reasons)
        return TraceFile(list(groups.values()), dict(rejected))
