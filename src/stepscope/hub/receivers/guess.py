"""Which signal a request holds that was sent to `/`, as by clients whose endpoint has no path."""

from stepscope.wire.otlp.fields import scan
from stepscope.wire.otlp.names import Encoding, Signal

_JSON_NAMES: tuple[tuple[bytes, Signal], ...] = (
    (b'"resourceSpans"', "traces"),
    (b'"resourceMetrics"', "metrics"),
    (b'"resourceLogs"', "logs"),
)


def guess_signal(encoding: Encoding, data: bytes) -> Signal:
    """Tell the signal by the first item; traces when there is none."""
    if encoding == "json":
        return next((signal for name, signal in _JSON_NAMES if name in data), "traces")
    try:
        item = _first(_first(_first(data, 1), 2), 2)
        numbers = {number for number, value in scan(item) if isinstance(value, int)}
    except (LookupError, ValueError):
        return "traces"
    if 7 in numbers:  # a span's start; the fields of a metric are none of them numbers
        return "traces"
    return "logs" if numbers & {1, 11} else "metrics"


def _first(message: bytes, number: int) -> bytes:
    """The first value of a repeated field; LookupError when there is none."""
    for field, value in scan(message):
        if field == number and isinstance(value, bytes):
            return value
    raise LookupError(number)
