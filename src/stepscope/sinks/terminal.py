"""A terminal with rich: scrolling lines, and one progress line below them."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from stepscope.model import formatting

SHOW_SECONDS = 0.1
"""Shortest interval between two updates of the progress line."""
RATE_SECONDS = 30.0
"""The period over which steps per second are measured."""


def has_terminal() -> bool:
    """Return whether standard output is a terminal and rich is installed."""
    try:
        if not sys.stdout.isatty():
            return False
        import rich.live  # noqa: F401
    except (AttributeError, ValueError, ImportError):
        return False
    return True


def printable(text: str, stream: Any) -> str:
    """Escape characters that a stream's encoding lacks, so that the rest is printed."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Terminal:
    """Prints lines above one line of progress; standard output itself is left as it is."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
        # Nothing is redirected, and no thread refreshes: a loop that prints must not pay for our line.
        self._live = Live(
            "", console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def show(self, lines: Iterable[str], progress: str) -> None:
        """Print lines, and draw the progress line; errors of a closed terminal are ignored."""
        try:
            if progress and not self._live.is_started:
                self._live.start()
            text = printable("\n".join(lines), self._console.file)
            if text:
                self._console.print(text)
            if progress:
                progress = printable(progress, self._console.file)
                self._live.update(progress[: max(self._console.width - 1, 1)], refresh=True)
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        """Remove the progress line."""
        try:
            self._live.stop()
        except (OSError, ValueError):
            pass


class Pace:
    """Progress and speed of a run, from its steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._seen: deque[tuple[float, int]] = deque(maxlen=1000)
        self._shown = float("-inf")

    def reach(self, step: int) -> None:
        """Note a step; lower ones are ignored."""
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((self._clock(), step))

    def is_due(self) -> bool:
        """Return whether to update the progress line; at most ten times a second."""
        now = self._clock()
        if now - self._shown < SHOW_SECONDS:
            return False
        self._shown = now
        return True

    def text(self, latest: str = "") -> str:
        """Format progress in one line, followed by the latest values."""
        now = self._clock()
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        if not self._seen:
            return ""
        (first, low), (_, high) = self._seen[0], self._seen[-1]
        rate = (high - low) / (now - first) if now > first else 0.0
        lasted = formatting.duration(math.floor(now - self._began))
        parts = [f"step {high}", f"{formatting.number(rate, 3)} steps/s", lasted, latest]
        return " · ".join(part for part in parts if part)
