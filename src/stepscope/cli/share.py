"""`stepscope share`: links that show one run or one project, to read only, until they end."""

import argparse
import time
from typing import Any

from stepscope.cli import text
from stepscope.cli.hub import duration
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, print_answer
from stepscope.hub.client import open_http_client, resolve_run
from stepscope.hub.home import address_of
from stepscope.model.errors import ConfigError

DAYS, MAX_DAYS = 7, 365
_DAY = 86400.0
_API = "/api/shares"


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(
        commands, "share", "make a link that shows one run or project, to read only, for a while", command
    )
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    until = f"how long it shows it: 12h, 30d (default {DAYS}d, at most {MAX_DAYS}d)"
    made.add_argument("--for", dest="seconds", type=duration, default=DAYS * _DAY, metavar="TIME", help=until)
    made.add_argument("--project", metavar="NAME", help="show all runs of this project instead")
    made.add_argument("--list", action="store_true", help="list the links that have not ended")
    made.add_argument("--revoke", metavar="ID", help="revoke a link: it shows nothing any more")


def command(args: argparse.Namespace) -> int:
    """Make, list or revoke links."""
    home = home_of(args)
    client, address = open_http_client(home), address_of(home)
    if client is None or address is None:
        raise ConfigError(f"no hub has {home} open: start one with stepscope hub --home {home}")
    if args.list:
        found = client.get(_API)["links"]
        print_answer(args, found, list(map(_line, found)) or "no links")
    elif args.revoke:
        revoked = client.change("DELETE", f"{_API}/{{id}}", id=args.revoke)
        print_answer(args, revoked, f"{args.revoke} is revoked")
    else:
        if not 0 < args.seconds <= MAX_DAYS * _DAY:
            raise ConfigError(f"a link lasts at most {MAX_DAYS} days: --for {DAYS}d")
        kind = "project" if args.project else "run"
        id = args.project or resolve_run(client, home, args.run)
        made = client.post(_API, {"kind": kind, "id": id, "for": args.seconds})
        _print(args, made, f"{address.rstrip('/')}/")
    return 0


def _print(args: argparse.Namespace, made: dict[str, Any], address: str) -> None:
    """Print a link that was made."""
    url = address + made["path"]
    shown = made["run"] or f"the project {made['project']}"
    until = text.clean(f"shows {shown} to whoever has it, until {_moment(made['expires'])}")
    answer = {**{key: each for key, each in made.items() if key != "path"}, "url": url}
    print_answer(args, answer, [url, until, f"stepscope share --revoke {made['id']} ends it"])


def _line(each: dict[str, Any]) -> str:
    return text.clean(f"{each['id']}  until {_moment(each['expires'])}  {each['name']}")


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
