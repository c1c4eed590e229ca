"""Observable instruments and the thread that asks them."""

import sys
import threading
from collections.abc import Callable, Generator, Iterable

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from stepscope.model.records import Metric
from stepscope.sdk.otel.observables import Observer
from stepscope.testing import Recording, recorded

meter = metrics.get_meter("observing")


def about(recording: Recording, name: str) -> tuple[str, bool]:
    """The type of a metric and whether it only rises."""
    instrument = next(metric.instrument for metric in recording.of(Metric) if name in metric.values)
    assert instrument is not None
    return instrument.type, instrument.monotonic


def test_callbacks_are_asked_about_once_a_second_and_at_the_end(until: Callable[..., None]) -> None:
    """A sum is recorded when it changed, a gauge each time; the last round is that of the end."""
    ticks = 0

    def tick(options: CallbackOptions) -> Iterable[Observation]:
        nonlocal ticks
        ticks += 1
        assert options.timeout_millis > 0
        yield Observation(ticks, {"kind": "rising"})
        yield Observation(7, {"kind": "same"})

    meter.create_observable_counter("ticks", [tick], "{tick}")
    meter.create_observable_gauge("level", [lambda options: [Observation(float("nan"))]])
    with recorded(otel=True) as recording:
        until(lambda: ticks >= 2)
        seen = ticks
    found = [
        (metric.attrs["kind"], metric.values["ticks"]) for metric in recording.of(Metric) if "ticks" in metric.values
    ]
    assert [value for kind, value in found if kind == "rising"] == list(range(1, ticks + 1))
    assert [value for kind, value in found if kind == "same"] == [7]
    assert ticks > seen
    assert len(recording.series("level")) >= ticks - 1
    assert (about(recording, "ticks"), about(recording, "level")) == (("sum", True), ("gauge", False))


def test_a_generator_is_sent_the_options() -> None:
    """A generator answers each time until it ends, and then observes nothing."""

    def states() -> Generator[Iterable[Observation], CallbackOptions, None]:
        options = yield []
        assert options.timeout_millis > 0
        yield [Observation(1)]

    meter.create_observable_up_down_counter("states", [states()])
    with recorded(otel=True) as recording:
        for _ in range(3):
            for collect in list(recording.run.periodic.collectors):
                collect()
    assert recording.series("states") == [(None, 1)]
    assert about(recording, "states") == ("sum", False)


def test_a_callback_that_raises_is_counted_and_the_others_go_on() -> None:
    """Whatever a callback does wrong, what it observed before and what the others observe is kept."""

    def wrong(options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(1)
        raise KeyError("gone")

    def leaves(options: CallbackOptions) -> Iterable[Observation]:
        sys.exit(1)

    meter.create_observable_gauge("wrong", [wrong, leaves, lambda options: None, 5])  # type: ignore[list-item, arg-type, return-value]
    meter.create_observable_gauge("unlike", [lambda options: [5, Observation("text")]])  # type: ignore[list-item, arg-type]
    meter.create_observable_gauge("right", [lambda options: [Observation(3)]])
    with recorded(otel=True) as recording:
        pass
    assert recording.series("wrong")
    assert recording.series("right")
    assert not recording.series("unlike")
    failed = {key for key in recording.run.outcomes.snapshot() if key.startswith("failed/callback")}
    assert {"failed/callback/KeyError", "failed/callback/SystemExit"} <= failed


def test_a_callback_that_hangs_holds_up_nobody() -> None:
    """Records are written and the run ends in bounded time although a callback hangs."""
    release, asked = threading.Event(), threading.Event()

    def hang(options: CallbackOptions) -> Iterable[Observation]:
        asked.set()
        release.wait(300)
        return []

    hanging = meter.create_observable_gauge("hanging", [hang])
    with recorded(otel=True) as recording:
        recording.run.log({"x": 1}, step=1)
        assert asked.wait(300)
        recording.run.log({"x": 2}, step=2)
        assert recording.run.flush(300)
    assert recording.series("x") == [(1, 1), (2, 2)]
    assert recording.run.outcomes.snapshot()["failed/callback/slow"] == 1
    release.set()
    hanging.source._callbacks.clear()  # type: ignore[attr-defined]


def test_the_observer_does_one_last_round() -> None:
    """Stopping waits for a round that began after it was asked for."""
    rounds: list[str] = []
    observer = Observer(lambda: rounds.append(threading.current_thread().name))
    assert observer.stop(300)
    assert rounds == ["stepscope-observer"]
