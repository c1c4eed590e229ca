"""The bus: who is called, in which order, what becomes of one that raises, and of wrong input."""

import asyncio
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event
from stepscope.training.bus import FAILURE, Bus
from tests.training.conftest import Mute, Read, broken


class Keep:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *said: Any) -> None:
        """Be called."""
        self.seen.append(said)


def test_attach_execute_detach() -> None:
    """A function is called with event, measurements, metadata and its config, until it is detached."""
    bus, keep = Bus(), Keep()
    assert bus.attach("one", ("a", "b"), keep, {"config": 1})
    bus.execute(["a", "b"], {"x": 1}, {"y": 2})
    bus.execute("a.b", 5)
    bus.execute("a.c", {"x": 1})
    assert bus.detach("one")
    assert not bus.detach("one")
    bus.execute("a.b", 6)
    assert keep.seen == [(("a", "b"), {"x": 1}, {"y": 2}, {"config": 1}), (("a", "b"), {"value": 5}, {}, {"config": 1})]


def test_an_id_is_taken_once() -> None:
    """The first that has an id keeps it."""
    bus, keep = Bus(), Keep()
    assert bus.attach("one", "a", keep)
    assert not bus.attach("one", "b", keep)
    assert [each.event for each in bus.list_handlers()] == [("a",)]


def test_list_by_prefix() -> None:
    """Attachments to events with a prefix are listed."""
    bus, keep = Bus(), Keep()
    bus.attach_many("many", ["a.b", "a.c", "d", "a.b"], keep)
    assert [each.event for each in bus.list_handlers("a")] == [("a", "b"), ("a", "c")]
    assert [each.event for each in bus.list_handlers(["d"])] == [("d",)]
    assert len(bus.list_handlers()) == 3


def test_one_that_raises_is_detached_and_announced(run: stepscope.Run, read: Read) -> None:
    """Others go on, it is called no more at any of its events, and the bus and the run say so."""
    bus, keep, announced = Bus(), Keep(), Keep()
    bus.attach("news", FAILURE, announced)

    def bad(*said: Any) -> None:
        raise KeyError("broken")

    bus.attach_many("bad", ["a", "b"], bad, "config")
    bus.attach("good", "a", keep)
    bus.execute("a", {"n": 1})
    bus.execute("b", {"n": 2})
    assert len(keep.seen) == 1
    assert {each.id for each in bus.list_handlers()} == {"news", "good"}
    ((event, measured, said, _),) = announced.seen
    assert event == FAILURE
    assert set(measured) == {"monotonic_time", "system_time"}
    assert (said["handler_id"], said["event_name"], said["handler_config"]) == ("bad", ("a",), "config")
    assert said["kind"] == "KeyError"
    assert "broken" in said["stacktrace"]
    (event,) = [each for each in read(Event) if each.name == "telemetry.handler.failure"]
    assert event.attrs["handler_id"] == "bad"
    assert run.outcomes.snapshot()["failed/bus/KeyError"] == 1


def test_one_that_raises_at_failures_ends_too() -> None:
    """A failure handler that raises does not recurse endlessly."""
    bus = Bus()

    def bad(*said: Any) -> None:
        raise ValueError

    bus.attach("first", FAILURE, bad)
    bus.attach("second", FAILURE, bad)
    bus.attach("third", "a", bad)
    bus.execute("a")
    assert bus.list_handlers() == []


def test_spans_by_function_and_by_block() -> None:
    """Both say start and stop with one context; the metadata of stop may differ."""
    bus, keep = Bus(), Keep()
    bus.attach_many("all", ["w.start", "w.stop", "w.exception"], keep)
    assert bus.span("w", {"a": 1}, lambda: ("result", {"extra": 2}, {"b": 2})) == "result"
    assert bus.span("w", {"a": 1}, lambda: (1, 2)) == (1, 2)
    with bus.span("w", {"a": 1}) as span:
        span.metadata["status"] = "ok"
        span.measurements["n"] = 3
    (start, stop, _, plain, _, block) = keep.seen
    assert start[2]["telemetry_span_context"] == stop[2]["telemetry_span_context"]
    assert (stop[1]["extra"], stop[2]["b"], "a" in stop[2]) == (2, 2, False)
    assert plain[2]["a"] == 1
    assert (block[1]["n"], block[2]["status"]) == (3, "ok")
    assert stop[1]["duration"] >= 0


def test_async_spans() -> None:
    """A coroutine function is awaited inside its span, and its exception propagates."""
    bus, keep = Bus(), Keep()
    bus.attach_many("all", ["w.stop", "w.exception"], keep)

    async def work() -> tuple[int, dict[str, int]]:
        await asyncio.sleep(0)
        return 1, {"n": 1}

    async def fail() -> None:
        async with bus.span("w", {"m": 1}):
            raise RuntimeError("no")

    assert asyncio.run(bus.span("w", {}, work)) == 1
    with pytest.raises(RuntimeError):
        asyncio.run(fail())
    assert [each[0][-1] for each in keep.seen] == ["stop", "exception"]
    assert (keep.seen[1][2]["m"], keep.seen[1][2]["kind"]) == (1, "RuntimeError")


def test_wrong_input_is_counted(run: stepscope.Run) -> None:
    """No call raises for invalid names, functions or mappings."""
    bus, keep = Bus(), Keep()
    assert not bus.attach("x", 3, keep)
    assert not bus.attach("x", "a", "no function")  # type: ignore[arg-type]
    assert not bus.attach_many("x", "a.b", keep)
    assert not bus.attach_many("x", [], keep)
    bus.execute(3)
    bus.execute(([], "a"))
    bus.attach("y", "a", keep)
    bus.execute("a", "text", [1])
    assert bus.span(7, None, lambda: 1) == 1
    assert bus.span("x", {}, 5) is None
    assert keep.seen == [(("a",), {}, {}, None)]
    counts = run.outcomes.snapshot()
    assert counts["rejected/event/int"] == counts["rejected/event/tuple"] == 1
    assert counts["rejected/measurements/str"] == counts["rejected/metadata/list"] == 1
    assert counts["rejected/span/int"] == counts["rejected/function/int"] == 1


@pytest.mark.parametrize("odd", [(1, 2), (), ([],), 123, "", None, [1]])
def test_an_invalid_event_name_is_counted_and_not_forwarded(run: stepscope.Run, odd: Any) -> None:
    """Neither an event nor a span of it reaches a function; the work of the span is done."""
    bus, keep = Bus(), Keep()
    bus.attach_many("all", ["start", "stop", "exception"], keep)
    bus.execute(odd, {"x": 1})
    assert bus.span(odd, {}, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError), bus.span(odd):
        1 / 0  # noqa: B018
    assert keep.seen == []
    kind = type(odd).__name__
    counts = run.outcomes.snapshot()
    assert (counts[f"rejected/event/{kind}"], counts[f"rejected/span/{kind}"]) == (1, 2)


def test_an_event_without_listeners_is_not_counted(run: stepscope.Run) -> None:
    """An event without listeners is valid and not counted."""
    Bus().execute(("a", "b"), {"x": 1})
    assert not [name for name in run.outcomes.snapshot() if name.startswith("rejected")]


def test_errors_that_say_nothing(run: stepscope.Run) -> None:
    """A function that raises one is detached and announced; a span passes on the user's own."""
    bus, keep, announced = Bus(), Keep(), Keep()

    def bad(*said: Any) -> None:
        raise Mute

    assert bus.attach(Mute(), "a", bad)
    bus.attach("news", FAILURE, announced)
    bus.attach("ends", "work.exception", keep)
    bus.execute("a")
    assert [each.id for each in bus.list_handlers("a")] == []
    assert [said["kind"] for _, _, said, _ in announced.seen] == ["Mute"]
    with pytest.raises(Mute), bus.span("work"):
        raise Mute
    assert [said["kind"] for _, _, said, _ in keep.seen] == ["Mute"]
    assert run.outcomes.snapshot()["failed/bus/Mute"] == 1


def test_events_that_cannot_be_read(run: stepscope.Run) -> None:
    """Nothing is attached, and it is counted."""
    bus = Bus()
    assert not bus.attach_many("one", broken(), Keep())
    assert bus.list_handlers() == []
    assert run.outcomes.snapshot()["rejected/attach/generator"] == 1
