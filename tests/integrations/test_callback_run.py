"""How a callback comes to a run and leaves it; what its methods raise is counted, and training goes on."""

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
    """It is counted, and does not reach the framework."""
    run = stepscope.init(shipper="none")
    for _ in range(2):
        Callback().on_step()
    assert run.outcomes.snapshot()["failed/callback/Mute"] == 2


def test_a_run_of_its_own_stays_its_own(place: Path) -> None:
    """After an exception that somebody caught nobody ended the run: who began it begins again, and ends it."""
    joined = CallbackRun({})
    run = joined.begin({})
    assert joined.begin({"again": 1}) is run
    joined.end()
    assert run.status == "finished"
    assert stepscope.current_run() is None


def test_a_run_of_another_is_not_ended(place: Path) -> None:
    """Neither by who joined it, nor by who had one of its own before."""
    joined = CallbackRun({})
    first = joined.begin({})
    second = stepscope.init()
    assert first.status == "finished"
    assert joined.current is second
    assert joined.begin({}) is second
    joined.end()
    assert second.status == "running"


def test_a_pause(place: Path) -> None:
    """A run that is paused is gone on with by who began it, and ended when another begins."""
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
