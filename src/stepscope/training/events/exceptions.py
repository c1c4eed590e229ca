"""A decorator that records exceptions on their way out, and whose fault they are."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import stepscope
from stepscope.sdk.spans import exception_attrs
from stepscope.training.events.kinds import APIConnectionError as APIConnectionError
from stepscope.training.events.kinds import APIStatusError as APIStatusError
from stepscope.training.events.kinds import APITimeoutError as APITimeoutError
from stepscope.training.events.kinds import RequestErrorCategory as RequestErrorCategory
from stepscope.training.events.kinds import RequestFailedError as RequestFailedError
from stepscope.training.events.kinds import check_dialect
from stepscope.training.events.kinds import is_user_error as is_user_error
from stepscope.training.events.telemetry import Telemetry


def capture_exceptions(
    function: Any = None, /, *, fatal: bool = False, reraise: bool = False, dialect: str = "document"
) -> Any:
    """Record an exception that leaves a function or coroutine as the event `exception.NAME`; bare, or with arguments.

    The event goes to what the object's `get_telemetry()` gives, else to the current run. Then the exception goes on,
    unless it is the user's fault by `is_user_error` and neither `fatal` nor `reraise` is set: such a call gives None,
    as the document of this decorator has it. `fatal` records CRITICAL, and writes it out before it goes on.
    """
    check_dialect(dialect)
    if isinstance(function, bool):  # capture_exceptions(True)
        function, fatal = None, function

    def decorate(wrapped: Callable[..., Any]) -> Any:
        def goes_on(args: tuple[Any, ...], error: Exception) -> bool:
            _record(args, wrapped, error, fatal)
            return fatal or reraise or not is_user_error(error, dialect)

        if inspect.iscoroutinefunction(wrapped):

            @functools.wraps(wrapped)
            async def later(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await wrapped(*args, **kwargs)
                except Exception as error:
                    if goes_on(args, error):
                        raise
                    return None

            return later

        @functools.wraps(wrapped)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return wrapped(*args, **kwargs)
            except Exception as error:
                if goes_on(args, error):
                    raise
                return None

        return call

    return decorate if function is None else decorate(function)


def _record(args: tuple[Any, ...], function: Callable[..., Any], error: Exception, fatal: bool) -> None:
    """Record an exception; whatever the user's objects do meanwhile, the exception is what counts."""
    try:
        found = getattr(args[0], "get_telemetry", None) if args else None
        telemetry = found() if callable(found) else Telemetry()
        if telemetry is None:
            return
        said = exception_attrs(error)
        data = {
            "exception_type": type(error).__name__,
            "exception_message": said["exception.message"],
            "traceback": said["exception.stacktrace"],
        }
        name = f"exception.{getattr(function, '__name__', 'function')}"
        telemetry.log(name, event_data=data, severity="CRITICAL" if fatal else "ERROR")
        if fatal and hasattr(telemetry, "flush"):
            telemetry.flush()
    except Exception as problem:
        run = stepscope.current_run()
        if run is not None:
            run.outcomes.add("failed", "capture_exceptions", type(problem).__name__)
