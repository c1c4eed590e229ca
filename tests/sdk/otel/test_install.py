"""Becoming the OpenTelemetry providers of a process, or leaving those that are there."""

import subprocess
from collections.abc import Callable
from typing import Any

from stepscope.model.ports import Batch
from stepscope.model.records import Event, Log, Metric, Span

Python = Callable[..., "subprocess.CompletedProcess[str]"]
Left = Callable[[type], list[Any]]


def test_what_was_obtained_before_init_works_after_it(python: Python, left: Left) -> None:
    """Tracers, meters, instruments and loggers made at import time write to the run that comes later."""
    done = python("""
        from opentelemetry import _logs, metrics, trace
        tracer, meter, logger = trace.get_tracer("t"), metrics.get_meter("m"), _logs.get_logger("l")
        counter, gauge = meter.create_counter("c"), meter.create_gauge("g")
        meter.create_observable_gauge("o", [lambda options: [metrics.Observation(1)]])
        with tracer.start_as_current_span("before"):
            counter.add(1), gauge.set(1), logger.emit(body="before")
        import stepscope
        with stepscope.init() as run, run.step(1), tracer.start_as_current_span("after"):
            counter.add(2), gauge.set(2), logger.emit(body="after")
    """)
    assert done.returncode == 0, done.stderr
    assert [span.name for span in left(Span)] == ["after", "train.step", "train.run"]
    assert [log.body for log in left(Log)] == ["after"]
    values = {key: value for metric in left(Metric) for key, value in metric.values.items()}
    assert (values["c"], values["g"], values["o"]) == (2, 2, 1)


def test_real_providers_are_left_alone(python: Python, left: Left) -> None:
    """With the OpenTelemetry SDK already set up, it keeps its spans, ours are recorded, and contexts still join."""
    done = python("""
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        memory = InMemorySpanExporter()
        theirs, meters = TracerProvider(), MeterProvider()
        theirs.add_span_processor(SimpleSpanProcessor(memory))
        trace.set_tracer_provider(theirs), metrics.set_meter_provider(meters)
        import stepscope
        with stepscope.init() as run:
            assert trace.get_tracer_provider() is theirs and metrics.get_meter_provider() is meters
            with trace.get_tracer("x").start_as_current_span("outer"), run.span("ours"):
                trace.get_tracer("x").start_span("inner").end()
        inner, outer = memory.get_finished_spans()
        print(f"{outer.context.trace_id:032x} {outer.context.span_id:016x} {inner.parent.span_id:016x}")
    """)
    trace_id, outer, above_inner = done.stdout.split()
    (ours,) = [span for span in left(Span) if span.name == "ours"]
    assert isinstance(ours, Span)
    assert ours.parent_id is not None
    assert (ours.trace_id.hex(), ours.parent_id.hex(), ours.span_id.hex()) == (trace_id, outer, above_inner)
    assert done.stderr.count("tracer provider already") == 1
    assert done.stderr.count("meter provider already") == 1
    assert "Overriding" not in done.stderr


def test_a_provider_that_cannot_be_loaded_stops_nothing(python: Python, left: Left) -> None:
    """With an invalid OTEL_PYTHON_TRACER_PROVIDER OpenTelemetry's spans are lost; the run continues."""
    done = python(
        "import stepscope\nwith stepscope.init() as run: run.span('ours').end()",
        env={"OTEL_PYTHON_TRACER_PROVIDER": "missing"},
    )
    assert done.returncode == 0, done.stderr
    assert "ours" in [span.name for span in left(Span)]


def test_otel_false_touches_no_provider(python: Python) -> None:
    """Who says otel=False keeps OpenTelemetry as it was, and does not load its metrics and logs."""
    program = """
        import sys, stepscope
        from opentelemetry import trace
        with stepscope.init(otel=False):
            print(type(trace.get_tracer_provider()).__name__, "opentelemetry.metrics" in sys.modules)
    """
    done = python(program, fresh=True)
    assert done.stdout.split() == ["ProxyTracerProvider", "False"], done.stderr


def test_a_forked_child_counts_for_itself(python: Python, batches: Callable[..., list[Batch]]) -> None:
    """A child starts its sums from nothing, in a writer of its own, and its callbacks are asked; parents go on."""
    done = python("""
        import multiprocessing, stepscope
        from opentelemetry import metrics, trace
        run = stepscope.init()
        meter = metrics.get_meter("m")
        counter = meter.create_counter("c")
        meter.create_observable_gauge("o", [lambda options: [metrics.Observation(1)]])
        counter.add(100)
        run.flush()

        def work():
            counter.add(7)
            with trace.get_tracer("t").start_as_current_span("child"):
                pass

        with run.step(3), trace.get_tracer("t").start_as_current_span("parent"):
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            child.join()
        counter.add(1)
        run.finish()
    """)
    assert done.returncode == 0, done.stderr
    sums: dict[bool, list[object]] = {True: [], False: []}
    spans = {}
    for batch in batches():
        for record in batch.records:
            if isinstance(record, Metric) and "c" in record.values:
                sums[batch.writer.main].append(record.values["c"])
            if isinstance(record, Span):
                spans[record.name] = record
    assert sums[True][-1] == 101
    assert sums[False] == [7]
    assert spans["child"].parent_id == spans["parent"].span_id
    assert spans["child"].step == 3


def test_at_the_end_of_the_interpreter_the_last_values_are_written(python: Python, left: Left) -> None:
    """A program that never calls finish leaves its sums and a last observation, whatever the exit."""
    done = python("""
        import stepscope
        from opentelemetry import metrics
        stepscope.init()
        meter = metrics.get_meter("m")
        state = [1]
        meter.create_observable_gauge("o", [lambda options: [metrics.Observation(state[0])]])
        meter.create_counter("c").add(5)
        stepscope.flush()
        meter.create_counter("c").add(5)
        state[0] = 2
        raise SystemExit(3)
    """)
    assert done.returncode == 3
    values = [metric.values for metric in left(Metric)]
    assert {"c": 10} in values
    # The end waits a second for callbacks; on a machine so busy that one takes longer, this is counted.
    assert {"o": 2} in values or any("failed/callback/slow" in each for each in values)
    assert [event.name for event in left(Event)][-1] == "train.run.finished"
