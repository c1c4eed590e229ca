"""Ray: tasks and actors record into the run of their caller, each call a child span of the caller's."""

import functools
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from opentelemetry.context import Context

import stepscope
from stepscope.extend import attach, current, detach, environment, extract, inject, join_as_member, setting
from stepscope.model.errors import ConfigError

ARGUMENT = "_stepscope"
"""The keyword argument that carries the run and context of a call."""
VARIABLE = "STEPSCOPE_CARRIED_RUN"
RUN_FIELD = "stepscope-run"
_lock = threading.Lock()
_described: tuple[Any, str] = (None, "")
"""The last described run and its description, as a cache."""
_callback_run = ""
"""The description of the run that this worker joined."""


def carried(target: Any = None, /, *, name: str | None = None) -> Any:
    """Decorate a function or class below `ray.remote`: each call carries the caller's run, trace and keys.

    The worker joins the run, and each call of the function, or of a public method of the class, has a span, named
    `Class.method` for methods. Called without Ray, only the span is added. Never raises.
    """
    if target is None:
        return lambda given: carried(given, name=name)
    if not inspect.isclass(target):
        return _wrap(target, name or str(getattr(target, "__name__", "task")))
    for method in dir(target):
        found = inspect.getattr_static(target, method)
        if inspect.isfunction(found) and (not method.startswith("_") or method == "__call__"):
            setattr(target, method, _wrap(found, f"{name or target.__name__}.{method}"))
    return target


def runtime_env(given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a `runtime_env` for `ray.init` with which every worker joins the current run at its start.

    Given values are kept; without a run nothing is added. ConfigError if the given setup hook is not a function.
    """
    env = dict(given or {})
    run = stepscope.current_run()
    if run is None:
        return env
    variables = {**environment(), VARIABLE: _describe(run)}
    env["env_vars"] = {**variables, **env.get("env_vars", {})}
    other = env.get("worker_process_setup_hook")
    if other is not None and not callable(other):
        raise ConfigError("runtime_env: worker_process_setup_hook must be a function, to be combined with ours")
    env["worker_process_setup_hook"] = join_worker if other is None else functools.partial(_both, other)
    return env


def join_worker() -> None:
    """Join the run that the worker's environment names; Ray calls it in each worker. Never raises."""
    _join(os.environ.get(VARIABLE))


def _both(other: Callable[[], object]) -> None:
    join_worker()
    other()


def outgoing() -> dict[str, str]:
    """The context for an outgoing call: trace, baggage and keys of the caller, and its run."""
    carrier = inject()
    run = stepscope.current_run()
    if run is not None:
        carrier[RUN_FIELD] = _describe(run)
    return carrier


def _describe(run: stepscope.Run) -> str:
    """The description that a worker needs to join a run, as text; cached."""
    global _described
    known, text = _described
    if known is not run:
        description = {
            "run_id": run.id,
            "project": run.project,
            "name": run.name,
            "home": str(run.home),
            "service_name": setting(run, "service_name"),
            "resource_attributes": dict(setting(run, "resource_attributes") or {}),
            "otel": setting(run, "otel"),
            "capture_logs": setting(run, "capture_logs"),
            "log_level": setting(run, "log_level"),
        }
        text = msgspec.json.encode({key: value for key, value in description.items() if value is not None}).decode()
        _described = (run, text)
    return text


def _join(text: str | None) -> None:
    """Make a run the current one of this worker; the previous one is finished."""
    global _callback_run
    if not text or (text == _callback_run and stepscope.current_run() is not None):
        return
    try:
        wanted = msgspec.json.decode(text)
        with _lock:
            run = stepscope.current_run()
            if run is None or run.id != wanted["run_id"]:
                joined = stepscope.init(**wanted, probes=False)
                join_as_member(joined)
            _callback_run = text
    except Exception as error:
        run = stepscope.current_run()
        if run is not None:
            run.count("rejected", "ray", type(error).__name__)


class _CallContext:
    """The received context of a call, with a span."""

    __slots__ = ("_carrier", "_name", "_span", "_token")

    def __init__(self, carrier: Any, name: str) -> None:
        self._carrier = carrier if isinstance(carrier, dict) else None
        self._name = name
        self._token: Any = None

    def __enter__(self) -> Any:
        if self._carrier is not None:
            _join(self._carrier.get(RUN_FIELD))
            self._token = attach(Context({**current(), **extract(self._carrier)}))
        self._span = stepscope.span(self._name, **{"ray.call": self._name})
        return self._span.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._span.__exit__(*raised)
        if self._token is not None:
            try:
                detach(self._token)
            except (ValueError, RuntimeError):  # a generator that was closed in another context
                pass


def _send(invocation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Add the context to a call; Ray runs this in the caller's process."""

    def send(args: Any, kwargs: Any) -> Any:
        return invocation(args, {**(kwargs or {}), ARGUMENT: outgoing()})

    return send


def _wrap(function: Callable[..., Any], name: str) -> Any:
    wrapped: Any = _wrap_same_kind(function, name)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    if ARGUMENT in signature.parameters:  # already decorated
        return function
    added = inspect.Parameter(ARGUMENT, inspect.Parameter.KEYWORD_ONLY, default=None)
    given = list(signature.parameters.values())
    at = len(given) - (bool(given) and given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    wrapped.__signature__ = signature.replace(parameters=[*given[:at], added, *given[at:]])
    wrapped.__ray_invocation_decorator__ = _send
    del wrapped.__wrapped__  # Ray would read signature and decorator from the innermost function
    return wrapped


def _wrap_same_kind(function: Callable[..., Any], name: str) -> Any:
    """Wrap a function in one of the same kind (coroutine, generator, plain), since Ray inspects it, with a span."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, _stepscope: Any = None, **kwargs: Any) -> Any:
            with _CallContext(_stepscope, name):
                return await function(*args, **kwargs)

        return later
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def stream(*args: Any, _stepscope: Any = None, **kwargs: Any) -> Any:
            with _CallContext(_stepscope, name):
                async for item in function(*args, **kwargs):
                    yield item

        return stream
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def items(*args: Any, _stepscope: Any = None, **kwargs: Any) -> Any:
            with _CallContext(_stepscope, name):
                yield from function(*args, **kwargs)

        return items

    @functools.wraps(function)
    def call(*args: Any, _stepscope: Any = None, **kwargs: Any) -> Any:
        with _CallContext(_stepscope, name):
            return function(*args, **kwargs)

    return call
