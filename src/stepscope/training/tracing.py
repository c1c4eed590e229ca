"""Tracing a training loop: set up once, then spans for epochs, batches, validation, data and features."""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from opentelemetry import trace

import stepscope
from stepscope.model import names
from stepscope.sdk.context import text_of
from stepscope.sdk.otel.seat import Seat
from stepscope.sdk.otel.tracer import Tracer, TracerProvider
from stepscope.sdk.spans import message_of
from stepscope.training import starting
from stepscope.training.counting import mapping, reject

F = TypeVar("F", bound=Callable[..., Any])
_epoch: ContextVar[int | None] = ContextVar("stepscope_epoch", default=None)


class CurrentSeat(Seat):
    """Whatever run is current, whoever is the process's OpenTelemetry provider."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    @property
    def run(self) -> Any:  # type: ignore[override]
        """The current run."""
        return stepscope.current_run()


class LoopTracerProvider(TracerProvider):
    """Gives tracers that write to the current run, and can be asked to write it out; it ends the run that it began."""

    def __init__(self, began: stepscope.Run | None) -> None:
        super().__init__(CurrentSeat())
        self._began = began

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until what was recorded is in the journal."""
        return bool(stepscope.flush(timeout_millis / 1000))

    def shutdown(self) -> None:
        """End the run, or write out one that was joined; a second call only writes out."""
        run, self._began = self._began, None
        if run is None:
            self.force_flush()
        else:
            run.finish()


def setup_tracing(
    service_name: str = "sequence",
    otlp_endpoint: str | None = "http://localhost:4318",
    environment: str = "development",
    **settings: Any,
) -> LoopTracerProvider | None:
    """Start recording under a service's name and send it to an OTLP server; None when nothing can be recorded.

    Never raises, and needs no server: what nobody takes waits in the journal. An endpoint on port 4317 is spoken to
    over gRPC; `None` sends nothing. Further arguments are those of `stepscope.init`. A run that is current is joined,
    and goes on after the provider's `shutdown`.
    """
    wanted = starting.otlp(otlp_endpoint) if otlp_endpoint else {}
    name, where = text_of(service_name), text_of(environment)
    said = {"environment": where, "deployment.environment": where}
    usual = {"project": name, "service_name": name, "resource_attributes": said}
    joins = stepscope.current_run() is not None
    run = starting.begin_quietly(wanted, **{**usual, **settings})
    return None if run is None or run.status == "disabled" else LoopTracerProvider(None if joins else run)


def get_tracer(module_name: str = "") -> Tracer:
    """The tracer of a module; works before `setup_tracing` too, and without a run records nothing."""
    return Tracer(CurrentSeat(), text_of(module_name or ""), {})


class TracingContext:
    """A named span around a block, sync or async; entering gives the span, and an exception marks it and goes on."""

    def __init__(
        self, tracer: trace.Tracer | None, span_name: str, attributes: Mapping[str, Any] | None = None
    ) -> None:
        self._tracer = tracer
        self._name = text_of(span_name)
        self._attributes = attributes
        self._entered: list[tuple[Any, trace.Span]] = []

    def __enter__(self) -> trace.Span:
        entry, span = self._open()
        self._entered.append((entry, span))
        return span

    def _open(self) -> tuple[Any, trace.Span]:
        attributes = mapping("attributes", self._attributes)
        if self._tracer is not None:
            try:
                entry = self._tracer.start_as_current_span(self._name, attributes=attributes)
                return entry, entry.__enter__()
            except Exception as error:  # a tracer that cannot is no reason to stop training
                reject("tracer", error)
        own = stepscope.span(self._name, **attributes)
        return own, own.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if not self._entered:
            return
        entry, span = self._entered.pop()
        if error is not None and kind is not GeneratorExit:
            span.set_attribute("error.type", type(error).__name__)
            span.set_attribute("error.message", message_of(error))
        try:
            entry.__exit__(kind, error, where)
        except Exception as raised:
            if raised is error:
                raise

    async def __aenter__(self) -> trace.Span:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, where)


def trace_function(tracer: Any = None, func_name: str | None = None) -> Any:
    """Put a span around each call of a function or coroutine; `@trace_function`, or with a tracer and a name.

    The span has `function`, and `result.status`: success or error.
    """
    if callable(tracer) and not isinstance(tracer, trace.Tracer):
        return trace_function()(tracer)

    def wrap(function: F) -> F:
        name = text_of(func_name or getattr(function, "__name__", "function"))

        def opened() -> TracingContext:
            return TracingContext(tracer, name, {"function": name})

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: Any, **kwargs: Any) -> Any:
                with opened() as span, _Status(span):
                    return await function(*args, **kwargs)

            return later  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with opened() as span, _Status(span):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return wrap


class _Status:
    """Says on a span how a call ended."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._span.set_attribute("result.status", "success" if error is None else "error")


class EpochContext(TracingContext):
    """The span of an epoch; validations inside it know which epoch it is."""

    def __init__(self, tracer: trace.Tracer | None, epoch: int, attributes: Mapping[str, Any]) -> None:
        super().__init__(tracer, "training_epoch", attributes)
        self._epoch = epoch
        self._tokens: list[Any] = []

    def __enter__(self) -> trace.Span:
        self._tokens.append(_epoch.set(self._epoch))
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            _epoch.reset(self._tokens.pop())
        except (IndexError, ValueError):  # left where it was not entered
            pass
        super().__exit__(kind, error, where)


def trace_training_epoch(tracer: trace.Tracer | None, epoch: int, num_epochs: int) -> EpochContext:
    """A span `training_epoch`; set `train_loss`, `val_loss`, `val_metric` and `loss_at_step_N` on it."""
    return EpochContext(tracer, epoch, {"epoch": epoch, "total_epochs": num_epochs})


def trace_batch_processing(tracer: trace.Tracer | None, batch_idx: int, batch_size: int) -> TracingContext:
    """A span `batch_processing`; set `loss` and `task.NAME` on it."""
    return _phase(tracer, "batch_processing", {"batch_index": batch_idx, "batch_size": batch_size})


def trace_validation(
    tracer: trace.Tracer | None,
    val_loss: float | None = None,
    val_metric: float | None = None,
    epoch: int | None = None,
) -> TracingContext:
    """A span `validation`; what is known only afterwards is set on it: `val_loss`, `val_metric`, `val.NAME`."""
    given = {"epoch": _epoch.get() if epoch is None else epoch, "val_loss": val_loss, "val_metric": val_metric}
    return _phase(tracer, "validation", {key: value for key, value in given.items() if value is not None})


def trace_data_loading(tracer: trace.Tracer | None, pair: str, num_samples: int | None = None) -> TracingContext:
    """A span `data_loading`."""
    given = {"pair": pair} if num_samples is None else {"pair": pair, "num_samples": num_samples}
    return _phase(tracer, "data_loading", given)


def trace_feature_engineering(
    tracer: trace.Tracer | None, pair: str, feature_count: int | None = None
) -> TracingContext:
    """A span `feature_engineering`."""
    given = {"pair": pair} if feature_count is None else {"pair": pair, "feature_count": feature_count}
    return _phase(tracer, "feature_engineering", given)


def _phase(tracer: trace.Tracer | None, name: str, attributes: dict[str, Any]) -> TracingContext:
    return TracingContext(tracer, name, {**attributes, names.ATTR_BUCKET: names.SPAN_BUCKETS[name]})
