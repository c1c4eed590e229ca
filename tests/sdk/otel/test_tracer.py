"""Spans that libraries make through the OpenTelemetry API."""

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry import _logs, metrics, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context

import stepscope
from stepscope.model.records import Log, Metric, Span
from stepscope.sdk.context import current_span, detach
from stepscope.sdk.otel.propagation import carry
from stepscope.testing import Recording, recorded

REMOTE = trace.SpanContext(0xABC, 0xDEF, True, trace.TraceFlags(3), trace.TraceState([("vendor", "secret-free")]))
tracer = trace.get_tracer("library", "1.2")
"""Obtained before any run: OpenTelemetry hands out a proxy."""


def by_name(recording: Recording) -> dict[str, Span]:
    """The finished spans, by name."""
    return {span.name: span for span in recording.of(Span) if span.duration is not None}


def test_their_spans_and_ours_are_parents_of_each_other() -> None:
    """Spans of run.span and of any tracer nest either way, in one trace, with the step on all of them."""
    with recorded(otel=True) as recording:
        run = recording.run
        with run.step(3), tracer.start_as_current_span("theirs"), run.span("ours"):
            trace.get_tracer("other").start_span("deep").end()
    found = by_name(recording)
    assert found["theirs"].parent_id == found["train.step"].span_id
    assert found["ours"].parent_id == found["theirs"].span_id
    assert found["deep"].parent_id == found["ours"].span_id
    assert len({found[name].trace_id for name in ("train.step", "theirs", "ours", "deep")}) == 1
    assert {found[name].step for name in ("train.step", "theirs", "ours", "deep")} == {3}


def test_scope_kind_and_attributes_are_recorded() -> None:
    """A span says which library made it and in what version; secrets are masked."""
    with recorded(otel=True) as recording:
        attributes = {"url": "/x", "authorization": "Bearer abc", "sizes": [1, 2]}
        tracer.start_span("get", kind=trace.SpanKind.CLIENT, attributes=attributes).end()
    span = by_name(recording)["get"]
    assert (span.scope, span.span_kind) == ("library", 3)
    assert span.attrs == {
        "otel.scope.version": "1.2",
        "url": "/x",
        "authorization": "[redacted]",
        "sizes": [1, 2],
    }


def test_start_span_does_not_make_current() -> None:
    """Entering what start_span returned only sees to its end, as OpenTelemetry has it."""
    with recorded(otel=True) as recording:
        with tracer.start_span("outside") as span:
            assert current_span() is None
            assert span.is_recording()
        assert not span.is_recording()
        with trace.use_span(span), tracer.start_as_current_span("inside"):
            pass
    found = by_name(recording)
    assert found["inside"].parent_id == found["outside"].span_id


def test_a_remote_parent_is_continued() -> None:
    """Spans below a remote parent continue its trace, with flags and state."""
    context = trace.set_span_in_context(trace.NonRecordingSpan(REMOTE), Context())
    with recorded(otel=True) as recording:
        server = tracer.start_span("server", context)
        with trace.use_span(server, end_on_exit=True), recording.run.span("below") as below:
            passed_on = below.get_span_context()
    found = by_name(recording)
    assert found["server"].trace_id == found["below"].trace_id == (0xABC).to_bytes(16, "big")
    assert found["server"].parent_id == (0xDEF).to_bytes(8, "big")
    assert (passed_on.trace_flags, passed_on.trace_state) == (3, REMOTE.trace_state)
    assert not passed_on.is_remote


UNSAMPLED = trace.SpanContext(5, 6, True, trace.TraceFlags(0), trace.TraceState([("a", "1")]))


def below(context: trace.SpanContext) -> Context:
    """A context whose span is another process's."""
    return trace.set_span_in_context(trace.NonRecordingSpan(context), Context())


def test_below_an_unsampled_parent_nothing_is_recorded() -> None:
    """As OpenTelemetry's default sampler decides; trace, state and decision are passed on, to further spans too."""
    with recorded(otel=True) as recording:
        span = tracer.start_span("left out", below(UNSAMPLED))
        passed_on = span.get_span_context()
        with trace.use_span(span, end_on_exit=True):
            tracer.start_span("left out too").end()
        assert not recording.run.open_spans
    assert not by_name(recording).keys() & {"left out", "left out too"}
    assert (passed_on.trace_id, passed_on.trace_state) == (5, UNSAMPLED.trace_state)
    assert passed_on.span_id not in (0, 6)
    assert not span.is_recording()
    assert not passed_on.trace_flags.sampled


def test_where_the_parent_is_and_its_state_are_recorded() -> None:
    """A span below another process's has OTLP's flags for that, and the trace state; one of ours says it is local."""
    with recorded(otel=True) as recording:
        server = tracer.start_span("server", below(REMOTE))
        with trace.use_span(server, end_on_exit=True):
            inner = tracer.start_span("inner")
            inner.end()
        root = tracer.start_span("root", Context())
        root.end()
    assert by_name(recording)["server"].attrs["w3c.tracestate"] == "vendor=secret-free"
    packed = [msgspec.msgpack.decode(span.packed()) for span in (server, inner, root)]  # type: ignore[attr-defined]
    assert [record[-1] for record in packed] == [0x303, 0x103, 0x101]


def test_an_empty_context_makes_a_root() -> None:
    """An explicit context without a span, or with an invalid one, starts a trace, whatever is current."""
    invalid = trace.set_span_in_context(trace.INVALID_SPAN, Context())
    with recorded(otel=True) as recording, recording.run.step(1):
        tracer.start_span("empty", Context()).end()
        tracer.start_span("invalid", invalid).end()
    found = by_name(recording)
    assert found["empty"].parent_id is None
    assert found["invalid"].parent_id is None
    assert len({found[name].trace_id for name in ("empty", "invalid", "train.step")}) == 3
    assert found["empty"].step == 1


def test_links_and_times_are_kept() -> None:
    """Valid links are kept with their attributes; given times are, and a given start counts for the duration."""
    links = [trace.Link(REMOTE, {"why": "retry"}), trace.Link(trace.INVALID_SPAN_CONTEXT)]
    long_ago = time.time_ns() - 5_000_000_000
    with recorded(otel=True) as recording:
        tracer.start_span("exact", start_time=1_000, links=links).end(4_000)
        tracer.start_span("early", start_time=long_ago).end()
    found = by_name(recording)
    assert (found["exact"].time, found["exact"].duration) == (1_000, 3_000)
    (link,) = found["exact"].links
    assert (link.trace_id[-2:], link.span_id[-2:]) == (b"\x0a\xbc", b"\x0d\xef")
    assert link.attrs == {"why": "retry", "w3c.tracestate": "vendor=secret-free", "otel.flags": 0x303}
    assert found["early"].time == long_ago
    assert found["early"].duration is not None
    assert 5e9 <= found["early"].duration < 60e9


def test_inside_any_span_the_context_is_an_opentelemetry_context() -> None:
    """Libraries may rely on its type, inside our spans, steps and theirs, and it cannot be changed in place."""
    with recorded(otel=True) as recording:
        run = recording.run
        for entry in (run.span("ours"), run.step(1), tracer.start_as_current_span("theirs"), carried_block()):
            with entry:
                assert type(otel_context.get_current()) is Context
                with pytest.raises(ValueError, match=r"^$"):
                    otel_context.get_current()["key"] = 1  # type: ignore[index]


@contextlib.contextmanager
def carried_block() -> Iterator[None]:
    """A block in which everything carries an attribute."""
    token = carry({"tenant": "blue"})
    yield
    detach(token)


def test_scopes_say_their_schema_and_providers_their_resource() -> None:
    """The schema URL rides on the records of its scope; the resource is what the journal says of the process."""
    url = "https://opentelemetry.io/schemas/1.21.0"
    with recorded(otel=True) as recording:
        trace.get_tracer("schema", "1", schema_url=url).start_span("a").end()
        metrics.get_meter("schema", "1", schema_url=url).create_counter("schema.counter").add(1)
        _logs.get_logger("schema", "1", schema_url=url).emit(body="text")
        provider: Any = trace.get_tracer_provider()
        for holder in (provider, metrics.get_meter_provider(), _logs.get_logger_provider(), provider.get_tracer("x")):
            assert holder.resource.attributes["train.run.id"] == recording.run.id
        assert provider.get_tracer("x").start_span("b").resource.attributes["service.name"] == recording.run.project
    counters = [metric for metric in recording.of(Metric) if "schema.counter" in metric.values]
    logs = [log for log in recording.of(Log) if log.scope == "schema"]
    for record in (by_name(recording)["a"], *counters, *logs):
        assert record.attrs["otel.scope.schema_url"] == url
    assert len(counters) == len(logs) == 1
    assert provider.resource.attributes == {}


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_exceptions_are_noted_as_far_as_asked(notes: bool, fails: bool) -> None:
    """record_exception and set_status_on_exception hold for both ways to start a span; the error goes on."""
    with recorded(otel=True) as recording:
        for start in (tracer.start_span, tracer.start_as_current_span):
            with (
                pytest.raises(KeyError),
                start(start.__name__, record_exception=notes, set_status_on_exception=fails),
            ):
                raise KeyError("gone")
    for name in ("start_span", "start_as_current_span"):
        span = by_name(recording)[name]
        assert [event.name for event in span.events] == ["exception"] * notes
        assert (span.status, span.message) == ((2, "KeyError: 'gone'") if fails else (0, ""))


def test_threads_and_tasks_join_when_context_is_passed() -> None:
    """A thread given the context, and tasks by themselves, are below the right parent and in its step."""
    with recorded(otel=True) as recording:

        def work(context: Context) -> None:
            token = otel_context.attach(context)
            tracer.start_span("attached").end()
            otel_context.detach(token)
            tracer.start_span("given", context).end()

        async def wait(number: int) -> None:
            with tracer.start_as_current_span(f"task{number}"):
                await asyncio.sleep(0.01)
                assert current_span() is not None
                assert current_span().name == f"task{number}"  # type: ignore[union-attr]

        async def main() -> None:
            await asyncio.gather(*(wait(number) for number in range(3)))

        with recording.run.step(9), tracer.start_as_current_span("parent"):
            context = otel_context.get_current()
            asyncio.run(main())
            copied = contextvars.copy_context()
        threads = [threading.Thread(target=work, args=(context,))]
        threads.append(threading.Thread(target=copied.run, args=(lambda: tracer.start_span("copied").end(),)))
        for thread in threads:
            thread.start()
            thread.join()
    found = by_name(recording)
    for name in ("attached", "given", "copied", "task0", "task1", "task2"):
        assert found[name].parent_id == found["parent"].span_id, name
        assert found[name].step == 9, name


def test_without_a_run_spans_record_nothing_and_pass_on() -> None:
    """Before init and after finish a span is not recording, and a remote parent is still propagated."""
    with recorded(otel=True):
        pass
    assert stepscope.current_run() is None
    context = trace.set_span_in_context(trace.NonRecordingSpan(REMOTE), Context())
    span = tracer.start_span("nowhere", context)
    assert not span.is_recording()
    assert span.get_span_context() == REMOTE
    with tracer.start_as_current_span("nowhere") as current:
        assert not current.is_recording()


def test_the_next_run_records_again() -> None:
    """Providers cannot be replaced, but after a second init they write to the new run only."""
    with recorded(otel=True) as first:
        left_open = tracer.start_span("first")
    with recorded(otel=True) as second:
        left_open.end()
        tracer.start_span("second").end()
    assert "second" not in by_name(first)
    assert "first" not in by_name(second)
    assert by_name(second)["second"].scope == "library"


def test_a_parent_of_an_earlier_run_gives_no_step() -> None:
    """The step of a finished run does not reach into the next."""
    with recorded(otel=True) as first, first.run.step(41):
        context = otel_context.get_current()
    with recorded(otel=True) as second:
        tracer.start_span("late", context).end()
    assert by_name(second)["late"].step is None


def test_instrumentations_can_read_what_they_ask_for() -> None:
    """Libraries compare `kind` and read `name` of spans, which the API does not have but every SDK does."""
    with recorded(otel=True):
        span = tracer.start_span("get", kind=trace.SpanKind.SERVER, attributes={"a": 1})
        assert span.kind == trace.SpanKind.SERVER  # type: ignore[attr-defined]
        assert span.name == "get"  # type: ignore[attr-defined]
        assert span.attributes["a"] == 1  # type: ignore[attr-defined]


def test_nothing_raises() -> None:
    """Whatever a caller passes, a span comes back, its methods return, and the rest of the trace is intact."""
    with recorded(otel=True) as recording:
        odd: list[dict[str, object]] = [
            {"name": 7},
            {"name": None, "attributes": "text"},
            {"name": "a", "attributes": {1: object()}},
            {"name": "b", "links": "text"},
            {"name": "c", "start_time": "now"},
            {"name": "d", "kind": "CLIENT"},
            {"name": "e", "context": 5},
        ]
        for arguments in odd:
            with tracer.start_as_current_span(**arguments) as span:  # type: ignore[arg-type]
                span.set_attributes("text")  # type: ignore[arg-type]
                span.set_attribute(5, object())  # type: ignore[arg-type]
                span.add_event(5, "text", "now")  # type: ignore[arg-type]
                span.add_link(None)  # type: ignore[arg-type]
                span.set_status(None)  # type: ignore[arg-type]
                span.set_status("ERROR", 5)  # type: ignore[arg-type]
                span.record_exception(None, "text", "now")  # type: ignore[arg-type]
                span.update_name(f"odd {arguments}")
            span.end("now")  # type: ignore[arg-type]
        assert not recording.run.open_spans
        tracer.start_span("sane").end()
        trace.get_tracer(None, attributes="text").start_span("nameless").end()  # type: ignore[arg-type]
    named = set(by_name(recording))
    assert {"sane", "nameless"} <= named
    assert len([name for name in named if name.startswith("odd ")]) == len(odd) - 1, "a context must be one"


def test_what_an_instrumentation_has_masked_stays_as_it_is() -> None:
    """Values already masked in headers, statements and URLs are not masked again."""
    masked = {
        "http.request.header.authorization": ["[REDACTED]"],
        "http.response.header.set_cookie": ["****"],
        "db.statement": "AUTH ? ?",
        "url.full": "https://user:*****@host/?sig=REDACTED",
    }
    with recorded(otel=True) as recording:
        span = trace.get_tracer("masking").start_span("get", attributes=masked)
        span.set_attributes({f"again.{key}": value for key, value in masked.items()})
        span.end()
    again = {f"again.{key}": value for key, value in masked.items()}
    assert by_name(recording)["get"].attrs == {**masked, **again}
