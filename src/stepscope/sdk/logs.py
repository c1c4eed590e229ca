"""Python's logging as records: one more handler on the root logger, everything else untouched."""

import logging
import time
from collections.abc import Callable
from typing import Any

from stepscope.model.records import LOG
from stepscope.sdk.attributes import LONGEST, clean
from stepscope.sdk.context import current_ids, pack
from stepscope.sdk.ports import Part
from stepscope.sdk.spans import exception_attrs


_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OTEL = frozenset({"otelTraceID", "otelSpanID", "otelServiceName", "otelTraceSampled"})
"""What OpenTelemetry's logging instrumentation adds to a record; the real ids ride on it already."""


class RunHandler(logging.Handler):
    """Records each log line once, with the trace, span and step it was written in."""

    def __init__(self, run: Part, level: str) -> None:
        super().__init__(level)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; never raises, never writes."""
        if record.name == "stepscope" or record.name.startswith("stepscope."):
            return
        run = self._run
        try:
            at = run.mark
            line = (
                LOG,
                int(record.created * 1e9) or time.time_ns(),
                *at,
                *current_ids(),
                severity(record.levelno),
                record.getMessage()[:LONGEST],
                _attrs(record),
                record.name,
            )
            run.recorder.put(pack(line))
        except Exception as error:
            run.outcomes.add("rejected", "log", type(error).__name__)


def severity(level: int) -> int:
    """The OpenTelemetry number of a logging level."""
    return max(1, min(21, 5 + 4 * ((level - 10) // 10))) if level >= 10 else 1


def _attrs(record: logging.LogRecord) -> dict[str, Any]:
    extra = {key: value for key, value in vars(record).items() if key not in _OWN and key not in _OTEL}
    attrs = clean(extra)
    attrs["code.file.path"] = record.pathname
    attrs["code.line.number"] = record.lineno
    attrs["code.function.name"] = record.funcName
    if record.exc_info and record.exc_info[1] is not None:
        attrs.update(exception_attrs(record.exc_info[1]))
    return attrs


def capture(run: Part) -> Callable[[], None]:
    """Record what reaches the root logger; the returned call ends that."""
    taker = RunHandler(run, run.settings.log_level)
    root = logging.getLogger()
    root.addHandler(taker)
    return lambda: root.removeHandler(taker)
