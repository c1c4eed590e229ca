"""Spans and steps."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from opentelemetry import trace

import stepscope
from stepscope.model.records import Event, Metric, Record, Span
from stepscope.sdk.context import current_span
from stepscope.sdk.spans import MAX_EVENTS

Records = Callable[..., list[Record]]


def by_name(records: Records) -> dict[str, Span]:
    """The finished spans, by name."""
    return {span.name: span for span in records(Span) if span.duration is not None}


def test_spans_nest(run: stepscope.Run, records: Records) -> None:
    """A span inside a span is its child, in the same trace, with the step of both."""
    with run.step(5), run.span("outer", a=1), run.span("inner") as inner:
        inner.set_attribute("b", [1, 2])
    found = by_name(records)
    step, outer, inner_record = found["train.step"], found["outer"], found["inner"]
    assert step.parent_id is None
    assert outer.parent_id == step.span_id
    assert inner_record.parent_id == outer.span_id
    assert {span.trace_id for span in found.values()} == {step.trace_id}
    assert {span.step for span in found.values()} == {5}
    assert (outer.attrs, inner_record.attrs) == ({"a": 1}, {"b": [1, 2]})
    assert step.duration is not None
    assert outer.duration is not None
    assert step.duration >= outer.duration > 0


def test_each_step_is_a_trace_linked_to_the_run(run: stepscope.Run, records: Records) -> None:
    """Steps are roots of their own traces; a link leads to the run's span."""
    for number in range(3):
        with run.step(number):
            pass
    run.finish()
    spans = records(Span)
    steps = [span for span in spans if span.name == "train.step"]
    (whole,) = [span for span in spans if span.name == "train.run"]
    assert len({span.trace_id for span in steps}) == 3
    assert all(span.links[0].trace_id == whole.trace_id and span.links[0].span_id == whole.span_id for span in steps)


def test_an_exception_is_recorded_and_goes_on(run: stepscope.Run, records: Records) -> None:
    """The exception itself passes; type, message, stack and ERROR stay on the span."""
    error = ValueError("wrong shape")
    with pytest.raises(ValueError, match="wrong shape") as caught, run.span("forward"):
        raise error
    assert caught.value is error
    span = by_name(records)["forward"]
    (event,) = span.events
    assert (span.status, span.message) == (2, "ValueError: wrong shape")
    assert event.attrs["exception.type"] == "ValueError"
    assert "test_spans.py" in event.attrs["exception.stacktrace"]


def test_leaving_with_exit_zero_is_no_error(run: stepscope.Run, records: Records) -> None:
    """SystemExit with status 0 does not mark the span."""
    with pytest.raises(SystemExit), run.span("a"):
        raise SystemExit(0)
    assert by_name(records)["a"].status == 0


def test_otel_sees_our_span_as_current(run: stepscope.Run) -> None:
    """Inside our span OpenTelemetry's current span is ours; afterwards it is gone."""
    with run.span("a") as span:
        assert trace.get_current_span() is span
        assert isinstance(span, trace.Span)
        assert trace.get_current_span().get_span_context().is_valid
    assert current_span() is None


def test_a_remote_parent_is_followed(run: stepscope.Run, records: Records) -> None:
    """A span under another process's span joins its trace."""
    remote = trace.NonRecordingSpan(trace.SpanContext(0xA, 0xB, True, trace.TraceFlags(3)))
    with trace.use_span(remote), run.span("child"):
        pass
    span = by_name(records)["child"]
    assert (int.from_bytes(span.trace_id, "big"), int.from_bytes(span.parent_id or b"", "big")) == (0xA, 0xB)


def test_ended_on_another_thread(run: stepscope.Run, records: Records) -> None:
    """A span may be ended anywhere, once."""
    span = run.span("request")
    thread = threading.Thread(target=span.end)
    thread.start()
    thread.join()
    span.end()
    span.set_attribute("late", 1)
    assert by_name(records)["request"].attrs == {}
    assert len([s for s in records(Span) if s.name == "request"]) == 1


def test_tasks_keep_their_own_step_and_span(run: stepscope.Run, records: Records) -> None:
    """Concurrent tasks do not see each other's step."""

    async def work(number: int) -> None:
        async with run.step(number), run.span(f"task{number}"):
            await asyncio.sleep(0)
            run.log({"n": number})
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(20)))

    asyncio.run(main())
    metrics = [metric for metric in records(Metric) if "n" in metric.values]
    assert all(metric.step == metric.values["n"] for metric in metrics)
    assert len(metrics) == 20
    assert all(by_name(records)[f"task{number}"].step == number for number in range(20))


def test_threads_of_a_step_see_it(run: stepscope.Run, records: Records) -> None:
    """A thread started inside a step logs at that step although it has a context of its own."""
    with run.step(9):
        thread = threading.Thread(target=lambda: run.log({"n": 1.0}))
        thread.start()
        thread.join()
    assert [metric.step for metric in records(Metric) if "n" in metric.values] == [9]


def test_left_in_another_context(run: stepscope.Run, records: Records) -> None:
    """A generator closed elsewhere ends its span without an error."""

    def numbers() -> object:
        with run.span("generator"):
            yield 1

    generator = numbers()
    thread = threading.Thread(target=lambda: next(generator))  # type: ignore[call-overload]
    thread.start()
    thread.join()
    generator.close()  # type: ignore[attr-defined]
    assert by_name(records)["generator"].status == 0


def test_an_open_span_is_shown(run: stepscope.Run, records: Records) -> None:
    """A span open for more than a second is recorded before it ends, once."""
    span = run.span("hung")
    span.start -= 2_000_000_000
    run.periodic(10**9)
    run.periodic(2 * 10**9)
    opened = [found for found in records(Span) if found.name == "hung"]
    assert [found.duration for found in opened] == [None]
    span.end()
    assert by_name(records)["hung"].span_id == opened[0].span_id


def test_spans_nobody_ends_are_bounded(run: stepscope.Run, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are known, and those before can still be ended."""
    monkeypatch.setattr("stepscope.sdk.flusher.MAX_OPEN", 3)  # so that ten are too many
    begun = [run.span(f"s{number}") for number in range(10)]
    run.periodic(10**9)
    assert list(run.open_spans.values()) == begun[-3:]
    begun[0].end()
    assert "s0" in by_name(records)


def test_entered_twice(run: stepscope.Run) -> None:
    """A span that is entered again inside itself is left once, and nothing stays current."""
    with run.span("twice") as span, span:
        assert trace.get_current_span() is span
    assert not trace.get_current_span().get_span_context().is_valid


def test_an_exception_finds_room_among_events(run: stepscope.Run, records: Records) -> None:
    """Events beyond the limit are counted; the exception that ends the span is always recorded."""

    def work() -> None:
        with run.span("busy") as span:
            for number in range(MAX_EVENTS + 5):
                span.add_event(f"e{number}")
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        work()
    events = by_name(records)["busy"].events
    assert (len(events), events[-1].name) == (MAX_EVENTS + 1, "exception")
    assert run.outcomes.snapshot()["dropped/span event/too many"] == 5


def test_names_that_cannot_be_said(run: stepscope.Run, records: Records) -> None:
    """No method raises for an object without a text."""

    class Mute:
        """Cannot be said."""

        def __str__(self) -> str:
            raise RuntimeError

    with run.span("a") as span:
        span.update_name(Mute())  # type: ignore[arg-type]
        span.set_status(trace.StatusCode.ERROR, Mute())  # type: ignore[arg-type]
    assert by_name(records)["<Mute>"].message == "<Mute>"


def test_status_follows_otel(run: stepscope.Run, records: Records) -> None:
    """OK is final, and only an error keeps its description."""
    with run.span("ok") as span:
        span.set_status(trace.Status(trace.StatusCode.OK))
        span.set_status(trace.StatusCode.ERROR, "later")
    with run.span("bad") as span:
        span.set_status(trace.StatusCode.ERROR, "why")
    found = by_name(records)
    assert (found["ok"].status, found["bad"].status, found["bad"].message) == (1, 2, "why")


def test_secrets_in_attributes_are_masked(run: stepscope.Run, records: Records) -> None:
    """Whatever way an attribute is set, a secret is not recorded, also when seen before."""
    for _ in range(2):
        with run.span("a", password="x", header={"Cookie": "y"}, max_tokens=5) as span:
            span.set_attribute("authorization", "z")
            span.add_event("e", {"access_token": "w"})
    span_record = by_name(records)["a"]
    assert span_record.attrs == {
        "password": "[redacted]",
        "header": {"Cookie": "[redacted]"},
        "max_tokens": 5,
        "authorization": "[redacted]",
    }
    assert span_record.events[0].attrs == {"access_token": "[redacted]"}


def test_odd_attributes_never_raise(run: stepscope.Run, records: Records) -> None:
    """Huge, deep and strange attributes are bounded, not refused."""

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    deep: dict[str, object] = {}
    deep["deep"] = deep
    with run.span("a", odd=Odd(), big="x" * 10**6, huge=2**100, deep=deep, many=list(range(10**5))):
        pass
    attrs = by_name(records)["a"].attrs
    assert attrs["odd"] == "<Odd>"
    assert len(attrs["big"]) < 70_000
    assert attrs["huge"] == str(2**100)
    assert len(attrs["many"]) == 256


def test_traced_functions(run: stepscope.Run, records: Records) -> None:
    """The decorator spans functions, coroutines and generators, bare or named."""

    @stepscope.traced
    def plain(x: int) -> int:
        return x + 1

    @stepscope.traced("named", part="a")
    async def later() -> int:
        return 3

    @stepscope.traced
    def items() -> object:
        yield from range(2)

    assert plain(1) == 2
    assert asyncio.run(later()) == 3
    assert list(items()) == [0, 1]
    found = by_name(records)
    assert found["named"].attrs == {"part": "a"}
    assert {name.rpartition(".")[2] for name in found} == {"plain", "named", "items"}
    assert plain.__name__ == "plain"


def test_captured_exceptions(run: stepscope.Run, records: Records) -> None:
    """Exceptions that pass are recorded and go on: as a block, a decorator, bare, async, on methods."""

    class Thing:
        @stepscope.capture_exceptions
        def method(self) -> None:
            raise KeyError("method")

        @stepscope.capture_exceptions
        @classmethod
        def of_class(cls, text: str) -> None:
            raise RuntimeError(cls.__name__ + text)

        @stepscope.capture_exceptions
        @staticmethod
        def of_nobody(text: str) -> None:
            raise RuntimeError(text)

    @stepscope.capture_exceptions(fatal=True)
    async def later() -> None:
        raise ValueError("async")

    with pytest.raises(KeyError):
        Thing().method()
    for call, text in ((Thing.of_class, "Thing!"), (Thing().of_class, "Thing!"), (Thing.of_nobody, "!")):
        with pytest.raises(RuntimeError, match=f"^{text}$"):
            call("!")
    with pytest.raises(ValueError, match="async"):
        asyncio.run(later())
    with pytest.raises(OSError, match="block"), stepscope.capture_exceptions():
        raise OSError("block")
    found = [event for event in records(Event) if event.name == "exception"]
    assert [(event.attrs["exception.type"], event.severity) for event in found] == [
        ("KeyError", 17),
        *[("RuntimeError", 17)] * 3,
        ("ValueError", 21),
        ("OSError", 17),
    ]


def test_a_span_with_too_many_attributes_keeps_those_set_last(run: stepscope.Run, records: Records) -> None:
    """Of an epoch with 2,500 losses, what has a name of its own stays, the last losses too; the rest is counted."""
    with run.span("training_epoch", epoch=1) as span:
        for step in range(2500):
            span.set_attribute(f"loss_at_step_{step}", 1.0 / (step + 1))
        span.set_attribute("train_loss", 0.25)
        span.set_attribute("val_loss", 0.5)
    found = by_name(records)["training_epoch"]
    assert (found.attrs["epoch"], found.attrs["train_loss"], found.attrs["val_loss"]) == (1, 0.25, 0.5)
    assert "loss_at_step_2499" in found.attrs
    assert len(found.attrs) == 256
    assert found.attrs["stepscope.cut"] == 2500 + 3 - 254
    assert found.attrs["stepscope.cut_keys"] == "loss_at_step_0 … loss_at_step_2248"
