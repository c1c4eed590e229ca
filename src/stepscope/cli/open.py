"""`stepscope open`: print the address of a run on the page, and open it where there is a browser to see it."""

import argparse
import os
import sys
import webbrowser
from urllib.parse import quote

from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of
from stepscope.hub.client import find_anywhere
from stepscope.hub.home import address_of
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
    run = find_anywhere(home, args.run)
    url = f"{address.rstrip('/')}/#/run/{quote(run, safe='')}"
    print(dumps({"run": run, "url": url}) if args.json else url, flush=True)
    if not (args.json or args.print) and sys.stdout.isatty() and has_display():
        webbrowser.open(url)
    return 0


def has_display() -> bool:
    """Whether a window can be shown."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
