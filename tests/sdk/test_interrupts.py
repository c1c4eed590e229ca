"""What objects of the program raise stays in the call; what a signal raises reaches the program."""

import _thread
import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import metrics, trace

import stepscope
from stepscope.sdk import process_hooks
from stepscope.sdk.interrupts import pass_on

RAISED = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)


class Hostile:
    """An object whose every method raises, as one that ends the program would."""

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    def _raise(self, *given: Any) -> Any:
        if self._kind is SystemExit:
            sys.exit(3)
        raise self._kind

    __float__ = __index__ = __str__ = __repr__ = __int__ = __bool__ = __len__ = __iter__ = __add__ = __radd__ = _raise
    __eq__ = __getitem__ = keys = items = _raise
    __hash__ = object.__hash__

    @property
    def device(self) -> Any:
        """What a tensor would have."""
        return self._raise()


CALLS: dict[str, Callable[[stepscope.Run, Any], object]] = {
    "log": lambda run, bad: run.log({"loss": bad}),
    "log after plain numbers": lambda run, bad: (run.log({"loss": 1.0}), run.log({"loss": bad})),
    "log key": lambda run, bad: run.log({bad: 1.0}),
    "log step": lambda run, bad: run.log({"loss": 1.0}, step=bad),
    "log category": lambda run, bad: run.log({"loss": 1.0}, category=bad),
    "log axis": lambda run, bad: run.log({"loss": 1.0}, axis=bad),
    "log nothing": lambda run, bad: run.log(bad),
    "step": lambda run, bad: run.step(bad, bad).end(),
    "span": lambda run, bad: run.span(bad, value=bad, inner={"a": [bad]}).end(),
    "span attributes": lambda run, bad: run.span("s").set_attributes(bad),
    "span attribute": lambda run, bad: run.span("s").set_attribute(bad, bad),
    "span event": lambda run, bad: run.span("s").add_event(bad, {"a": bad}, bad),
    "span exception": lambda run, bad: run.span("s").record_exception(ValueError(bad), {"a": bad}),
    "span status": lambda run, bad: run.span("s").set_status(trace.StatusCode.ERROR, bad),
    "span name": lambda run, bad: run.span("s").update_name(bad),
    "span end": lambda run, bad: run.span("s").end(bad),
    "event": lambda run, bad: run.event(bad, {"a": bad}, bad, step=bad),
    "event data": lambda run, bad: run.event("e", bad),
    "alert": lambda run, bad: run.alert(bad, bad, bad, value=bad),
    "exception": lambda run, bad: run.exception(ValueError(bad), value=bad),
    "tag": lambda run, bad: run.tag(bad, team=bad),
    "note": lambda run, bad: run.note(bad),
    "rename": lambda run, bad: run.rename(bad),
    "measure": lambda run, bad: run.measure({"m": bad}, {"a": bad}),
    "flush": lambda run, bad: run.flush(bad),
    "logging": lambda run, bad: logging.getLogger("hostile").info("%d", 1, extra={"a": bad}),
    "counter": lambda run, bad: metrics.get_meter("m").create_counter("c").add(bad, {"a": bad}),
    "tracer": lambda run, bad: trace.get_tracer("t").start_span("s", attributes={"a": bad}).end(),
    "finish": lambda run, bad: run.finish(bad),
}


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("call", CALLS)
def test_no_call_raises_what_an_object_raised(call: str, kind: type[BaseException], run: stepscope.Run) -> None:
    """Whatever an object raises when it is asked for a number, a text or its items, the call returns."""
    raised = None
    try:
        CALLS[call](run, Hostile(kind))
    except BaseException as error:
        raised = type(error).__name__  # pytest would print the object, which raises
    assert raised is None


def test_a_contained_exit_is_not_the_status_of_the_run(run: stepscope.Run) -> None:
    """A program that goes on after an object called `sys.exit(3)` has not failed."""
    run.log({"loss": Hostile(SystemExit)})
    assert run.exit_status is None


def test_an_exit_is_contained_where_an_earlier_run_watches_it_too(run: stepscope.Run) -> None:
    """Each run that was not finished wraps `sys.exit` once more; that is not a signal either."""
    undo = process_hooks._watch_exit(run)
    try:
        run.log({"loss": Hostile(SystemExit)})
        assert run.exit_status is None
    finally:
        undo()


def test_the_flusher_outlives_a_callback_that_exits(run: stepscope.Run) -> None:
    """A collector that raises SystemExit is counted; records are written as before."""
    run.periodic.collectors.append(lambda: sys.exit(3))
    run.log({"loss": 1.0})
    assert run.flush(300)
    run.log({"loss": 1.0})
    assert run.flush(300)


@contextmanager
def handling(number: int, handler: Callable[..., object]) -> Iterator[None]:
    """Handle a signal for a while."""
    earlier = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, earlier)


class Interrupted:
    """A number during whose reading a signal arrives."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __float__(self) -> float:
        _thread.interrupt_main(self._number)
        return sum(float(each) for each in range(1000))


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals need the main thread")
def test_ctrl_c_reaches_the_program(run: stepscope.Run) -> None:
    """A signal that arrives while `log` reads a number ends the program as it would have outside."""
    with handling(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        run.log({"loss": Interrupted(signal.SIGINT)})

    def raise_it(*given: Any) -> None:
        raise KeyboardInterrupt

    with handling(signal.SIGINT, raise_it), pytest.raises(KeyboardInterrupt):
        run.log({"loss": Interrupted(signal.SIGINT)})
    with handling(signal.SIGTERM, lambda *given: sys.exit(0)), pytest.raises(SystemExit):
        run.log({"loss": Interrupted(signal.SIGTERM)})


def test_an_exception_without_a_frame_is_passed_on() -> None:
    """One that was raised in no code of the program is not contained; ordinary errors are."""
    with pytest.raises(SystemExit):
        pass_on(SystemExit())
    pass_on(ValueError())
