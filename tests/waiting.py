"""Waiting for something to become true, without keeping the processor busy by asking."""

import time
from collections.abc import Callable

_FIRST, _LONGEST = 0.005, 0.05
_SHARE = 4
"""How much longer than a question took the pause after it is: a request to a hub may cost tens of milliseconds."""
_LATE = 0.1
"""How much later than it became true something may be found to be so, as a part of the time that it was waited for."""
_MOST = 1.0


def wait_until(is_true: Callable[[], object], seconds: float = 300) -> None:
    """Ask until the answer is true, often at first; AssertionError when that takes longer than the deadline."""
    began = time.monotonic()
    deadline, pause = began + seconds, _FIRST
    while True:
        asked = time.monotonic()
        if is_true():
            return
        answered = time.monotonic()
        assert answered < deadline, f"not true within {seconds} s"
        time.sleep(max(pause, min(max(_SHARE * (answered - asked), _LATE * (answered - began)), _MOST)))
        pause = min(pause * 1.5, _LONGEST)
