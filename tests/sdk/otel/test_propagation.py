"""Trace context and baggage across processes: headers, carriers and the environment."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context

import stepscope
from stepscope.model.records import Span
from stepscope.sdk.otel import propagation as texts
from stepscope.sdk.otel.propagation import environment
from stepscope.testing import read_run, recorded

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
tracer = trace.get_tracer("propagating")


def test_a_carrier_leads_out_and_in_again() -> None:
    """Inject and extract with any dict carry our span and the baggage; our flags are those of a sampled span."""
    with recorded(otel=True) as recording:
        carrier: dict[str, str] = {}
        with recording.run.span("client"):
            token = otel_context.attach(baggage.set_baggage("tenant", "a b"))
            propagate.inject(carrier)
            otel_context.detach(token)
        context = propagate.extract(carrier, Context())
        tracer.start_span("server", context).end()
    found = {span.name: span for span in recording.of(Span)}
    assert carrier["traceparent"] == f"00-{found['client'].trace_id.hex()}-{found['client'].span_id.hex()}-01"
    assert found["server"].parent_id == found["client"].span_id
    assert baggage.get_baggage("tenant", context) == "a b"


def test_an_unreadable_carrier_is_counted() -> None:
    """Carried attributes that are no JSON lead to an empty context, and the run says so."""
    with recorded(otel=True) as recording:
        assert not texts.extract({texts.FIELD: "{no json"})
        assert recording.run.outcomes.snapshot()["rejected/extract/DecodeError"] == 1


@pytest.mark.parametrize("flags", ["00", "01", "03", "ff"])
def test_flags_and_state_are_passed_on(flags: str) -> None:
    """Whatever the flags of a traceparent are, it is continued and they go out again, as does the state."""
    header = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}", "tracestate": "vendor=1,other=2"}
    with recorded(otel=True) as recording:
        out: dict[str, str] = {}
        above = propagate.extract(header, Context())
        with tracer.start_as_current_span("server", above), recording.run.span("client"):
            propagate.inject(out)
    client = next(span for span in recording.of(Span) if span.name == "client")
    assert out["traceparent"] == f"00-{TRACE}-{client.span_id.hex()}-{flags}"
    assert out["tracestate"] == header["tracestate"]


def test_the_environment_of_a_subprocess() -> None:
    """environment() carries the current span, else that of the run, and the baggage with the run's id."""
    with recorded(otel=True) as recording:
        run = recording.run
        outside = environment()
        with run.span("launch") as span:
            inside = environment()
    assert inside["TRACEPARENT"] == f"00-{span.trace.hex()}-{span.id.hex()}-01"
    assert outside["TRACEPARENT"] == f"00-{run.link[0].hex()}-{run.link[1].hex()}-01"
    assert inside["BAGGAGE"] == outside["BAGGAGE"] == f"train.run.id={run.id}"
    assert environment() == {}, "without a run and a span there is nothing to say"


CHILD = """
    import stepscope, threading
    from opentelemetry import baggage, trace
    from opentelemetry.context import Context
    from stepscope.sdk.otel.propagation import environment

    run = stepscope.init()
    with run.step(1):
        with run.span("in step"):
            pass
    with run.span("root"):
        pass
    threading.Thread(target=lambda: run.span("thread").end()).start()
    tracer = trace.get_tracer("child")
    tracer.start_span("otel").end()
    tracer.start_span("request", Context()).end()
    print(baggage.get_baggage("tenant"), trace.get_current_span() is trace.INVALID_SPAN)
    print(environment()["BAGGAGE"])
    run.finish()
    print(baggage.get_all())
"""


def test_an_inherited_traceparent(
    python: Callable[..., subprocess.CompletedProcess[str]], left: Callable[[type], list[Any]]
) -> None:
    """Steps and explicit roots point to the span the process was started in; other roots are its children."""
    env = {"TRACEPARENT": f"00-{TRACE}-{SPAN}-03", "BAGGAGE": "tenant=blue", "TRACESTATE": "vendor=1"}
    done = python(CHILD, env=env)
    assert done.stdout.splitlines() == ["blue True", "tenant=blue,train.run.id=e2e", "{}"], done.stderr
    found = {span.name: span for span in left(Span)}
    above = (bytes.fromhex(TRACE), bytes.fromhex(SPAN))
    for name in ("root", "thread", "otel", "train.run"):
        assert (found[name].trace_id, found[name].parent_id) == above, name
    for name in ("train.step", "request"):
        assert found[name].parent_id is None
        assert found[name].trace_id != above[0]
        assert above in [(link.trace_id, link.span_id) for link in found[name].links], name
    assert found["in step"].parent_id == found["train.step"].span_id
    run_link = found["train.step"].links[0]
    assert (run_link.trace_id, run_link.span_id) == (found["train.run"].trace_id, found["train.run"].span_id)


@pytest.mark.parametrize("wrong", ["", "nonsense", f"00-{'0' * 32}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01"])
def test_a_wrong_traceparent_is_ignored(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no traceparent makes a root, as if nothing had been said."""
    monkeypatch.setenv("TRACEPARENT", wrong)
    with recorded(otel=True) as recording:
        recording.run.span("root").end()
    (span,) = [span for span in recording.of(Span) if span.name == "root"]
    assert span.parent_id is None


def test_from_a_run_to_the_run_of_a_subprocess(tmp_path: Path) -> None:
    """A program started inside a step is below it, in the same trace, in a run of its own."""
    program = "import stepscope; run = stepscope.init(run_id='child'); run.span('work').end(); run.finish()"
    with recorded(otel=True) as recording, recording.run.step(5), recording.run.span("start"):
        env = {**os.environ, **environment(), "STEPSCOPE_HOME": str(tmp_path), "STEPSCOPE_PROBES": "0"}
        env["PYTHONPATH"] = str(Path(stepscope.__file__).parents[1])
        subprocess.run([sys.executable, "-c", program], env=env, check=True, timeout=300)
    start = next(span for span in recording.of(Span) if span.name == "start")
    work = next(span for span in read_run(tmp_path, "child") if isinstance(span, Span) and span.name == "work")
    assert (work.trace_id, work.parent_id) == (start.trace_id, start.span_id)
