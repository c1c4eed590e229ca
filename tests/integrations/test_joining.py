"""What a callback's method raises is counted, whatever it is, and training goes on."""

from pathlib import Path

import stepscope
from stepscope.integrations.joining import counted


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
