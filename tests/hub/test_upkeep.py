"""Work that is done now and then."""

import threading

from stepscope.hub.upkeep import Upkeep


def test_goes_on() -> None:
    """A failure is told and does not end the work; stopping ends it."""
    done = threading.Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("no")
        done.set()

    upkeep = Upkeep(work, first=0.0, every=0.01)
    upkeep.start()
    assert done.wait(5)
    upkeep.stop()
    assert upkeep.trouble == ""
    count = len(calls)
    assert not threading.Event().wait(0.05)
    assert len(calls) == count
