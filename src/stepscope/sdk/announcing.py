"""The one line that `init` prints: the run's id and how to look at it."""

import sys
from typing import TextIO
from urllib.parse import quote

from stepscope.journal.serving import address_of
from stepscope.sdk.ports import Part
from stepscope.sdk.settings import default_home


def announce(run: Part, stream: TextIO | None = None) -> None:
    """Print the line on standard error, from rank 0 of a run that is not quiet. Never raises.

    Unless `quiet` says so, it is printed only where standard error is a terminal.
    """
    try:
        out = sys.stderr if stream is None else stream
        quiet = run.settings.quiet
        if run.rank or quiet or (quiet is None and not out.isatty()):
            return
        print(line(run), file=out, flush=True)
    except Exception:  # such as a standard error that is closed, or None
        return


def line(run: Part) -> str:
    """Name the run, and where it can be seen: on the page of the hub that runs, else with a command."""
    home = run.settings.home
    address = address_of(home)
    elsewhere = "" if home == default_home() else f" --home {home}"
    where = f"{address}/#/run/{quote(run.id, safe='')}" if address else f"stepscope show{elsewhere} {run.id}"
    called = f"{run.project}/{run.name}" if run.name else run.project
    return f"stepscope: recording {called}, run {run.id}: {where}"
