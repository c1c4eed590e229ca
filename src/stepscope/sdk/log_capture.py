"""Record Python's logging: a handler that is called after all others, which stay untouched."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stepscope.model.records import LOG
from stepscope.sdk.attributes import clean, shorten
from stepscope.sdk.context import CARRIED_KEY, current, current_ids, pack_any
from stepscope.sdk.exception_records import exception_attrs
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.run_protocols import Part

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
NEVER = 1 << 30
"""A level above that of any line."""
INJECTED = frozenset({"otelTraceID", "otelSpanID", "otelServiceName", "otelTraceSampled"})
"""Fields added by OpenTelemetry's logging instrumentation; the ids are recorded anyway."""


class RunHandler(logging.Handler):
    """Records each log line once, with the trace, span and step it was written in."""

    def __init__(self, run: Part, level: int) -> None:
        super().__init__(level)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        """Record a line; never raises, never does I/O."""
        run = self._run
        try:
            line = (
                LOG,
                _time_of(record),
                *run.mark,
                *current_ids(),
                severity(record.levelno),
                shorten(record.getMessage()),
                _attrs(record),
                shorten(record.name),
            )
            run.recorder.put(Unmasked(pack_any(line)))
        except BaseException as error:
            pass_on(error)
            run.outcomes.add("rejected", "log", type(error).__name__)


def is_ours(name: str) -> bool:
    """Return whether a logger is Stepscope's own, which is not recorded."""
    return name == "stepscope" or name.startswith("stepscope.")


_recorded: deque[int] = deque(maxlen=256)
"""The times of the latest recorded lines, to recognise duplicates from an OpenTelemetry handler."""


def is_recorded(at: int) -> bool:
    """Return whether a line that arrives through OpenTelemetry was recorded here already; each line matches once.

    OpenTelemetry's handlers take the time from the same Python record, so equal times mean the same line.
    """
    try:
        _recorded.remove(at)
    except ValueError:
        return False
    return True


def level_number(setting: str) -> int:
    """The lowest level that is recorded, of the setting `log_level`."""
    if setting.isdecimal():
        return int(setting)
    return NEVER if setting == "OFF" else int(getattr(logging, setting))


def _time_of(record: logging.LogRecord) -> int:
    return int(record.created * 1e9) or time.time_ns()


def severity(level: int) -> int:
    """The OpenTelemetry number of a logging level."""
    return max(1, min(21, 5 + 4 * ((level - 10) // 10))) if level >= 10 else 1


def _attrs(record: logging.LogRecord) -> dict[str, Any]:
    extra = {key: value for key, value in vars(record).items() if key not in _OWN and key not in INJECTED}
    attrs = {**current().get(CARRIED_KEY, {}), **clean(extra)}
    attrs["code.file.path"] = record.pathname
    attrs["code.line.number"] = record.lineno
    attrs["code.function.name"] = record.funcName
    if record.exc_info and record.exc_info[1] is not None:
        attrs.update(exception_attrs(record.exc_info[1]))
    return attrs


def capture(run: Part) -> Callable[[], None]:
    """Record every line this process logs; the returned function stops it.

    A handler on the root logger would suppress the default output of warnings, turn a later `basicConfig` into a no-op,
    be removed by `dictConfig`, and miss loggers that do not propagate. So `Logger.callHandlers` is wrapped instead.
    """
    taker = RunHandler(run, level_number(run.settings.log_level))
    earlier = logging.Logger.callHandlers

    def record_line(logger: logging.Logger, record: logging.LogRecord) -> None:
        wanted = record.levelno >= taker.level and not is_ours(record.name)
        if wanted:
            _recorded.append(_time_of(record))
        try:
            earlier(logger, record)
        finally:
            if wanted:
                taker.handle(record)

    def undo() -> None:
        taker.setLevel(NEVER)
        if logging.Logger.callHandlers is record_line:
            logging.Logger.callHandlers = earlier  # type: ignore[method-assign]

    logging.Logger.callHandlers = record_line  # type: ignore[assignment, method-assign]
    return undo
