"""`stepscope open`: print the address of a run on the page, and open it where there is a browser to see it."""

import argparse
import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from urllib.parse import quote

from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of
from stepscope.hub.client import open_http_client, resolve_run
from stepscope.hub.home import address_of
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.model.errors import ConfigError
from stepscope.wire.plain import dumps


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "open", "open a run on the page of the hub", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    made.add_argument("--print", action="store_true", help="print the address only")


def command(args: argparse.Namespace) -> int:
    """Print the address; open it where standard output is a terminal on a desktop."""
    home = home_of(args)
    address = address_of(home)
    if address is None:
        raise ConfigError(f"no hub has {home} open: start one with stepscope hub --home {home}")
    run = _find(home, args.run)
    url = f"{address.rstrip('/')}/#/run/{quote(run, safe='')}"
    print(dumps({"run": run, "url": url}) if args.json else url, flush=True)
    if not (args.json or args.print) and sys.stdout.isatty() and has_display():
        webbrowser.open(url)
    return 0


def has_display() -> bool:
    """Whether a window can be shown."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _find(home: Path, name: str) -> str:
    """The run among the journals, else among those that only the hub has."""
    try:
        return find_run(home, name)
    except UnknownRun as unknown:
        client = open_http_client(home)
        if client is not None:
            with contextlib.suppress(UnknownRun):
                return resolve_run(client, home, name)
        raise unknown
