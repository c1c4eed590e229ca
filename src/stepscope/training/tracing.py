"""Tracing of a training loop: spans for epochs, batches, validation, data loading and feature engineering."""

import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from opentelemetry import trace

import stepscope
from stepscope.extend import describe_error, message_of, text_of, tracers, wrap
from stepscope.model import names
from stepscope.training import run_start
from stepscope.training.inputs import mapping, reject

_epoch: ContextVar[int | None] = ContextVar("stepscope_epoch", default=None)


class LoopTracerProvider(trace.TracerProvider):
    """Provides tracers that write to the current run; `shutdown` ends the run if `setup_tracing` started it."""

    def __init__(self, started: stepscope.Run | None, undo: Callable[[], None] | None = None) -> None:
        self._started = started
        self._undo = undo

    def get_tracer(self, *args: Any, **given: Any) -> trace.Tracer:
        """Return a tracer, with OpenTelemetry's arguments."""
        return tracers().get_tracer(*args, **given)

    @property
    def resource(self) -> Any:
        """The resource of the current run."""
        return tracers().resource

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until all records are in the journal."""
        return bool(stepscope.flush(timeout_millis / 1000))

    def shutdown(self) -> None:
        """Stop timing torch and end the run; a joined run is only flushed, as is any run by a second call."""
        run, self._started = self._started, None
        if self._undo is not None:
            self._undo()
        if run is None:
            self.force_flush()
        else:
            run.finish()


def setup_tracing(
    service_name: str = "sequence",
    otlp_endpoint: str | None = "http://localhost:4318",
    environment: str = "development",
    *,
    torch: bool = True,
    **settings: Any,
) -> LoopTracerProvider | None:
    """Start recording for a service and send records to an OTLP server; None when nothing can be recorded.

    Never raises, and needs no server: undelivered records stay in the journal. An endpoint on port 4317 uses
    gRPC; `None` sends nothing. The span of the run itself, `train.run`, is recorded but not sent. PyTorch, if already
    imported, is timed until the provider's `shutdown` or the end of the run, unless `torch` is false or it is timed
    already. Further arguments are those of `stepscope.init`; an invalid one is ignored with a warning. A current run
    is joined, and continues after `shutdown`.
    """
    sinks = _spans_of_the_program(run_start.otlp(otlp_endpoint)) if otlp_endpoint else {}
    name, where = text_of(service_name), text_of(environment)
    attributes = {"environment": where, "deployment.environment": where}
    usual = {"project": name, "service_name": name, "resource_attributes": attributes}
    joins = stepscope.current_run() is not None
    run = run_start.join_or_start_safely(sinks, {**usual, **settings})
    if run is None or run.status == "disabled":
        return None
    return LoopTracerProvider(None if joins else run, _time_torch(run) if torch else None)


def _spans_of_the_program(sinks: run_start.Sinks) -> run_start.Sinks:
    """Leave out the root span of the run: the top level is the program's own, such as its epochs."""
    return {name: {**options, "exclude": [names.SPAN_RUN]} for name, options in sinks.items()}


def _time_torch(run: stepscope.Run) -> Callable[[], None] | None:
    """Time PyTorch until the run ends or the returned function is called; None if not imported, or already timed."""
    if "torch" not in sys.modules:
        return None
    try:
        from stepscope.integrations.torch import instrument_once

        undo = instrument_once()
    except Exception as error:  # an unsupported torch must not stop training
        run.count("failed", "torch", type(error).__name__)
        run.warn(f"PyTorch is not timed: {describe_error(error)}")
        return None
    if undo is not None:
        run.on_finish(undo)
    return undo


def get_tracer(module_name: str = "") -> trace.Tracer:
    """The tracer of a module; works before `setup_tracing`, and records nothing without a run."""
    return tracers().get_tracer(text_of(module_name or ""))


class TracingContext:
    """A named span around a block, sync or async; entering returns the span. Exceptions are recorded and propagate."""

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
            except Exception as error:  # a failing tracer must not stop training
                reject("tracer", error)
        span = stepscope.span(self._name, **attributes)
        return span, span.__enter__()

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

    async def __aexit__(self, *raised: Any) -> None:
        self.__exit__(*raised)


def trace_function(tracer: Any = None, func_name: str | None = None) -> Any:
    """Put a span around each call of a function; `@trace_function`, or with a tracer and a name.

    Coroutines, generators and methods are supported too. The span has `function`, and `result.status`:
    success or error.
    """
    if isinstance(tracer, classmethod) or (callable(tracer) and not isinstance(tracer, trace.Tracer)):
        return trace_function()(tracer)

    def decorate(function: Any) -> Any:
        name = text_of(func_name or getattr(function, "__name__", "function"))
        return wrap(function, lambda *args: CallContext(tracer, name, {"function": name}))

    return decorate


class CallContext(TracingContext):
    """The span of a call, with its outcome; closing a generator early is not a failure."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._entered:
            failed = error is not None and kind is not GeneratorExit
            self._entered[-1][1].set_attribute("result.status", "error" if failed else "success")
        super().__exit__(kind, error, where)


class EpochContext(TracingContext):
    """The span of an epoch; validation spans inside it get its number."""

    def __init__(self, tracer: trace.Tracer | None, epoch: int, attributes: Mapping[str, Any]) -> None:
        super().__init__(tracer, "training_epoch", attributes)
        self._epoch = epoch
        self._tokens: list[Any] = []

    def __enter__(self) -> trace.Span:
        self._tokens.append(_epoch.set(self._epoch))
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        try:
            _epoch.reset(self._tokens.pop())
        except (IndexError, ValueError):  # exited without enter, or in another context
            pass
        super().__exit__(*raised)


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
    """A span `validation`; results can be set on it later: `val_loss`, `val_metric`, `val.NAME`."""
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
