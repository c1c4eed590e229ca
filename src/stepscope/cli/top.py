"""`stepscope top`: watch a run on a terminal, with or without a hub: charts, what went wrong, open spans, logs."""

import argparse
import contextlib
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any

from stepscope.cli.findings import PATH, LatestFindings
from stepscope.cli.journal_diagnosis import diagnose
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of
from stepscope.cli.stored_run import open_stored
from stepscope.cli.text import WIDTH, width
from stepscope.cli.watching.hub_view import HubView
from stepscope.cli.watching.screen import Found, RunView, Styled, View, frame
from stepscope.hub.client import expand_latest
from stepscope.journal.resolve_run import find_run
from stepscope.journal.watched import Watched
from stepscope.model.errors import ConfigError
from stepscope.wire.plain import dumps

ROWS = 40
"""The height of a frame without a terminal and without LINES."""
READ_SECONDS = 0.25
"""Time for reading and for diagnosing before a frame is drawn."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "top", "watch a run on the terminal, live", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    made.add_argument("--once", action="store_true", help="print one frame and exit")
    made.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between frames (1)")


def command(args: argparse.Namespace) -> int:
    """Watch until `q`."""
    home = home_of(args)
    name = expand_latest(home, args.run)
    console = None if args.json else _console()
    live = not (args.json or args.once) and sys.stdin.isatty() and sys.stdout.isatty()
    with open_stored(home, name, only_hub=live) as stored:
        if stored is not None:
            watched: RunView = HubView(stored)
        else:
            watched = Watched(home, find_run(home, name))
        if console is not None and live:
            return _live(watched, LatestFindings(home, watched.run), console, max(args.interval, 0.1))
        while watched.read():
            pass
        found = stored.get(PATH)["findings"] if stored is not None else diagnose(home, watched.run)
        return _json(watched, found) if console is None else _once(watched, found, console)


def _once(watched: RunView, found: Found, console: Any) -> int:
    # Without a terminal the size of a frame is that of COLUMNS and LINES.
    shown = console.is_terminal
    columns, rows = (width(), console.size.height) if shown else shutil.get_terminal_size((WIDTH, ROWS))
    for line in _drawn(watched, View(), columns, rows, found):
        console.print(line.text, style=line.style or None, markup=False, highlight=False, no_wrap=True, crop=False)
    return 0


def _console() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        raise ConfigError("top needs rich: pip install 'stepscope[terminal]'") from None
    return Console(soft_wrap=True)


def _json(watched: RunView, found: Found) -> int:
    status = watched.status()
    known = {key: watched.last(key) for key in sorted(watched.keys)}
    metrics = {key: {"last": last, "points": points} for key, (last, points) in known.items()}
    answer = {"run": watched.run, "status": status, "step": watched.step, "metrics": metrics, "findings": found}
    print(dumps(answer))
    return 0


def _drawn(watched: RunView, view: View, columns: int, rows: int, found: Found) -> list[Styled]:
    return frame(watched, watched.status(), found, view, columns, rows)


def _live(watched: RunView, diagnosis: LatestFindings, console: Any, interval: float) -> int:
    from rich.live import Live
    from rich.text import Text

    view = View()
    with keyboard() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            more = watched.read(READ_SECONDS) | diagnosis.advance(READ_SECONDS)
            size = console.size
            lines = _drawn(watched, view, size.width, size.height, diagnosis.findings())
            shown = Text("\n", no_wrap=True, overflow="crop").join(Text(line.text, style=line.style) for line in lines)
            live.update(shown, refresh=True)
            for key in pressed(0.0 if more else interval):
                if key in "qQ\x03\x1b":
                    return 0
                view.page += {"n": 1, " ": 1, "p": -1}.get(key, 0)
                view.log ^= key == "l"


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Return a function that waits at most this long for keys; the terminal is restored at the end."""
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
