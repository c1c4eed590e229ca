"""A decorator that records the exceptions a function raises, and whether they are user errors."""

import inspect
from types import TracebackType
from typing import Any

import stepscope
from stepscope.extend import exception_attrs, text_of, wrap
from stepscope.training.events import APIConnectionError as APIConnectionError
from stepscope.training.events import APIStatusError as APIStatusError
from stepscope.training.events import APITimeoutError as APITimeoutError
from stepscope.training.events import RequestErrorCategory as RequestErrorCategory
from stepscope.training.events import RequestFailedError as RequestFailedError
from stepscope.training.events import check_dialect
from stepscope.training.events import is_user_error as is_user_error
from stepscope.training.events.telemetry import Telemetry


def capture_exceptions(
    function: Any = None,
    /,
    *,
    fatal: bool = False,
    reraise: bool = False,
    severity: str = "ERROR",
    dialect: str | None = None,
) -> Any:
    """Record an exception raised by a function as the event `exception.NAME`; usable with or without arguments.

    Coroutines, generators and methods are supported too. The event goes to the telemetry that the object's
    `get_telemetry()` returns, else to the current run. Then the exception propagates, unless it is a user error
    (see `is_user_error`) and neither `fatal` nor `reraise` is set: such a call returns None, as specified for this
    decorator. Exceptions of a generator always propagate: suppressed, they would look like its end. `fatal` also
    waits until the event is in the journal. The default dialect is that of the telemetry.
    """
    if dialect is not None:
        check_dialect(dialect)
    if isinstance(function, bool):  # capture_exceptions(True)
        function, fatal = None, function

    def decorate(wrapped: Any) -> Any:
        name = text_of(getattr(wrapped, "__name__", "function"))
        inner = getattr(wrapped, "__func__", wrapped)
        goes_on = fatal or reraise or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
        mode = fatal, goes_on
        return wrap(wrapped, lambda *args: _Capture(args[0] if args else None, name, mode, severity, dialect))

    return decorate if function is None else decorate(function)


class _Capture:
    """One call: records its exception, and suppresses user errors."""

    def __init__(self, owner: Any, name: str, mode: tuple[bool, bool], severity: str, dialect: str | None) -> None:
        self._owner, self._name, self._severity, self._dialect = owner, name, severity, dialect
        self._fatal, self._goes_on = mode

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        telemetry = None
        try:
            telemetry = _telemetry_of(self._owner)
            if telemetry is not None:
                self._record(telemetry, error)
        except Exception as problem:  # failures of the user's objects must not replace the exception
            run = stepscope.current_run()
            if run is not None:
                run.count("failed", "capture_exceptions", type(problem).__name__)
        rule = self._dialect or (telemetry.dialect if isinstance(telemetry, Telemetry) else "document")
        return not self._goes_on and is_user_error(error, rule)

    def _record(self, telemetry: Any, error: Exception) -> None:
        attrs = exception_attrs(error)
        data = {
            "exception_type": type(error).__name__,
            "exception_message": attrs["exception.message"],
            "traceback": attrs["exception.stacktrace"],
        }
        telemetry.log(f"exception.{self._name}", event_data=data, severity=self._severity)
        if self._fatal and hasattr(telemetry, "flush"):
            telemetry.flush()


def _telemetry_of(owner: Any) -> Any:
    """The object's `get_telemetry()`, if it can be called, else telemetry for the current run."""
    found = getattr(owner, "get_telemetry", None)
    if not callable(found) or (isinstance(owner, type) and not inspect.ismethod(found)):
        return Telemetry(start_run=False)
    return found()
