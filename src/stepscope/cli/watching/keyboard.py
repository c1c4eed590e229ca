"""Single keys of a terminal, without Enter and without waiting."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """A function that waits at most so long for keys and returns them; the terminal is as before at the end."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield lambda seconds: _keys(number, seconds)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _keys(number: int, seconds: float) -> str:
    ready, _, _ = select.select([number], [], [], seconds)
    return os.read(number, 64).decode("utf-8", "replace") if ready else ""
