"""How a callback joins and leaves a run; exceptions of its methods are counted, and training continues."""

from pathlib import Path

import stepscope
from stepscope.integrations.callback_run import CallbackRun, counted


class Mute(Exception):
    """An error that raises when it is asked for its text."""

    def __str__(self) -> str:
        raise RuntimeError("mute")

    __repr__ = __str__


class Callback:
    """A framework's callback."""

    @counted
    def on_step(self) -> None:
        """Fail."""
        raise Mute


def test_an_error_that_says_nothing(place: Path) -> None:
    """An exception without a message is counted, and does not reach the framework."""
    run = stepscope.init(shipper="none")
    for _ in range(2):
        Callback().on_step()
    assert run.outcomes.snapshot()["failed/callback/Mute"] == 2


def test_a_run_of_its_own_stays_its_own(place: Path) -> None:
    """A run left open by a caught exception is continued and ended by the callback that started it."""
    joined = CallbackRun({})
    run = joined.begin({})
    assert joined.begin({"again": 1}) is run
    joined.end()
    assert run.status == "finished"
    assert stepscope.current_run() is None


def test_a_run_of_another_is_not_ended(place: Path) -> None:
    """A callback does not end a run that it joined, even if it had its own run before."""
    joined = CallbackRun({})
    first = joined.begin({})
    second = stepscope.init()
    assert first.status == "finished"
    assert joined.current is second
    assert joined.begin({}) is second
    joined.end()
    assert second.status == "running"


def test_a_pause(place: Path) -> None:
    """A paused run is continued by its own callback, and ended when another begins."""
    one, other = CallbackRun({}), CallbackRun({})
    run = one.begin({})
    one.pause()
    assert (one.active, one.current) == (None, run)
    assert one.begin({}) is run
    one.pause()
    later = other.begin({})
    assert (run.status, later is run) == ("finished", False)
    one.pause()
    assert later.status == "running"
