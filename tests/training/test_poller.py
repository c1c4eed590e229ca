"""The poller: periodic measurements, those of the Python runtime, and ones that raise."""

import asyncio
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

import stepscope
from stepscope.training.bus import Bus, runtime
from stepscope.training.bus.runtime import EventLoopLag, Poller, dispatch_runtime_metrics
from tests.training.conftest import Mute


def watched(bus: Bus, *events: str) -> dict[str, list[tuple[Any, Any]]]:
    """Record the measurements of some events."""
    seen: dict[str, list[tuple[Any, Any]]] = {each: [] for each in events}
    bus.attach_many(
        "watch", list(events), lambda event, measured, said, _: seen[".".join(event)].append((measured, said))
    )
    return seen


def test_the_runtime() -> None:
    """Memory, run queues, garbage collection and threads are said with real numbers."""
    bus = Bus()
    seen = watched(bus, "vm.memory", "vm.total_run_queue_lengths", "python.gc", "python.threads")
    dispatch_runtime_metrics(bus)
    assert seen["vm.memory"][0][0]["total"] > 1_000_000
    lengths = seen["vm.total_run_queue_lengths"][0][0]
    assert lengths["total"] == lengths["cpu"] + lengths["io"] >= 1
    assert seen["python.threads"][0][0]["count"] == threading.active_count()
    assert [said["generation"] for _, said in seen["python.gc"]] == [0, 1, 2]
    assert {"pending", "collections", "collected"} <= set(seen["python.gc"][0][0])


def test_it_polls_until_it_is_stopped(until: Callable[..., None]) -> None:
    """At once and then each period; pairs of event and function as well; the thread ends."""
    bus, calls = Bus(), []
    seen = watched(bus, "queue")
    with Poller([lambda: calls.append(1), (("queue",), lambda: {"depth": 4})], 0.01, bus=bus):
        until(lambda: len(calls) >= 3)
    assert seen["queue"][0] == ({"depth": 4}, {})
    assert not [each for each in threading.enumerate() if each.name == "stepscope-poller"]


def test_a_measurement_that_raises_is_not_called_again(run: stepscope.Run) -> None:
    """The others are; it is counted."""
    calls: list[int] = []

    def bad() -> None:
        raise OSError("gone")

    poller = Poller([bad, lambda: calls.append(1)], period=-1)
    poller.poll()
    poller.poll()
    assert len(calls) == 2
    assert bad not in poller.measurements
    counts = run.outcomes.snapshot()
    assert (counts["failed/poller/OSError"], counts["rejected/period/int"]) == (1, 1)


def test_an_error_that_says_nothing(run: stepscope.Run) -> None:
    """A measurement that raises it is given up as any other."""

    class Bad:
        """A measurement without a text."""

        def __call__(self) -> None:
            raise Mute

        def __repr__(self) -> str:
            raise Mute

    poller = Poller([Bad(), ("x", Bad())])
    poller.poll()
    assert poller.measurements == []
    assert run.outcomes.snapshot()["failed/poller/Mute"] == 2


def test_event_loop_lag(until: Callable[..., None]) -> None:
    """A loop that answers has a lag; one that is blocked has a growing one; a closed one says nothing."""
    bus = Bus()
    seen = watched(bus, "python.event_loop")["python.event_loop"]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    lag = EventLoopLag(loop, "server", bus)
    lag()
    until(lambda: (lag(), len(seen) >= 2)[1])
    assert seen[0][0]["lag"] >= 0
    assert set(seen[0][0]) == {"lag"}
    assert seen[0][1] == {"loop": "server"}
    blocked, free = threading.Event(), threading.Event()
    loop.call_soon_threadsafe(lambda: (blocked.set(), free.wait(300)))
    assert blocked.wait(300)
    until(lambda: (lag(), seen[-1][0]["lag"] > 20_000_000)[1])
    free.set()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    count = len(seen)
    lag()
    assert len(seen) == count


def test_a_period_that_is_longer_than_threads_wait(until: Callable[..., None]) -> None:
    """The thread waits as long as it can, and ends when it is asked to."""
    for period in (math.inf, 10**12):
        calls: list[int] = []
        with Poller([functools.partial(calls.append, 1)], period, bus=Bus()) as poller:
            until(lambda found=calls: found)
            assert poller._thread is not None
            assert poller._thread.is_alive()


def test_a_module_a_function_and_its_arguments(run: stepscope.Run) -> None:
    """As Erlang's poller takes them; a module may be named; one that is not there is given up."""
    bus = Bus()
    seen = watched(bus, "vm.memory")["vm.memory"]
    module = "stepscope.training.bus.runtime"
    good = [(module, "dispatch_vm_metrics", [bus]), (runtime, "dispatch_vm_metrics", (bus,))]
    poller = Poller([*good, (module, "nothing", []), ("no.such.module", "f", [])], bus=bus)
    poller.poll()
    assert len(seen) == 2
    assert poller.measurements == good
    assert run.outcomes.snapshot()["failed/poller/ModuleNotFoundError"] == 1


def test_measurements_that_are_none(run: stepscope.Run) -> None:
    """Invalid measurements are counted and ignored."""
    Poller(5).poll()  # type: ignore[arg-type]
    Poller([5]).poll()  # type: ignore[list-item]
    counts = run.outcomes.snapshot()
    assert (counts["rejected/measurements/int"], counts["failed/poller/TypeError"]) == (1, 1)


def test_a_period_in_milliseconds_is_warned_about(run: stepscope.Run, caplog: pytest.LogCaptureFixture) -> None:
    """`period: 10_000` there is ten seconds, here nearly three hours; a value copied from there gives a warning."""
    Poller([], period=10)
    assert "milliseconds" not in " ".join([*run.outcomes.take_notices(), caplog.text])
    Poller([], period=10_000)
    assert "milliseconds" in " ".join([*run.outcomes.take_notices(), caplog.text])
