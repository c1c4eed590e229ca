"""One line of progress: updated in place on a terminal, a plain line every few seconds elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

Show = Callable[[str, int, int, str], None]
"""Called with the task, how much is done, the total, and a short note."""
PLAIN_SECONDS = 2.0


@contextlib.contextmanager
def progress(out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[Show]:
    """Show progress on standard error: with rich on a terminal that has it, else in plain lines."""
    out = out or sys.stderr
    if out.isatty():
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            pass
        else:
            columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            word = TextColumn("{task.fields[word]}", markup=False)
            with Progress(*columns, word, console=Console(file=out), transient=True) as shown:
                yield _bars(shown)
            return
    yield plain(out, clock)


def _bars(shown: object) -> Show:
    tasks: dict[str, int] = {}

    def show(what: str, done: int, total: int, word: str) -> None:
        if what not in tasks:
            tasks[what] = shown.add_task(what, total=total, word="")  # type: ignore[attr-defined]
        shown.update(tasks[what], completed=done, word=word)  # type: ignore[attr-defined]

    return show


def plain(out: TextIO, clock: Callable[[], float]) -> Show:
    """Print a line every few seconds, and one at the end."""
    shown = -PLAIN_SECONDS

    def show(what: str, done: int, total: int, word: str) -> None:
        nonlocal shown
        now = clock()
        if done < total and now - shown < PLAIN_SECONDS:
            return
        shown = now
        out.write(f"{what} {done}/{total}  {word}\n")
        out.flush()

    return show
