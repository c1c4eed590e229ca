"""`stepscope demo`: train a small model in which things go wrong, then say what did."""

import argparse
import sys
import time
from collections.abc import Callable

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.cli.report import look, report
from stepscope.model.errors import ConfigError


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "demo", "train a small model in which things go wrong, and name them", command)
    made.add_argument("--exit", action="store_true", help="end after the summary (it does so anyway without a hub)")


def command(args: argparse.Namespace) -> int:
    """Train, then print the run."""
    try:
        from stepscope.demo.train import train
    except ImportError:
        raise ConfigError("the demo needs numpy: pip install 'stepscope[demo]'") from None
    home = home_of(args)
    run = train(home, progress_line())
    print(report(look(home, run.id), text.width()))
    print(f"\nlook again with: stepscope show {run.id}")
    return 0


def progress_line() -> Callable[[int, int, float], None]:
    """Keep one line of progress on a terminal, or print one line a second elsewhere."""
    live = sys.stderr.isatty()
    shown = 0.0

    def show(done: int, total: int, loss: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if done < total and now - shown < (0.1 if live else 1.0):
            return
        shown = now
        filled = 30 * done // total
        line = f"training {'#' * filled}{'.' * (30 - filled)} {done}/{total}  loss {loss:.4f}"
        print(
            f"\r{line}" if live else line,
            end="" if live and done < total else "\n",
            file=sys.stderr,
            flush=True,
        )

    return show
