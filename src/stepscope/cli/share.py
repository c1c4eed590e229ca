"""`stepscope share`: a link that shows one run, to read only, until it ends."""

import argparse
import time
from urllib.parse import quote

from stepscope.cli.hub import duration
from stepscope.cli.hub_runs import open_run
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of
from stepscope.hub.home import address_of, tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.model.errors import ConfigError
from stepscope.wire.plain import dumps

DAYS, MAX_DAYS = 7, 365
_DAY = 86400.0


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "share", "make a link that shows one run, to read only, for a while", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    until = f"how long it shows the run: 12h, 30d (default {DAYS}d, at most {MAX_DAYS}d)"
    made.add_argument("--for", dest="seconds", type=duration, default=DAYS * _DAY, metavar="TIME", help=until)


def command(args: argparse.Namespace) -> int:
    """Make the token and print the link."""
    home = home_of(args)
    address = address_of(home)
    if address is None:
        raise ConfigError(f"no hub has {home} open: start one with stepscope hub --home {home}")
    if not 0 < args.seconds <= MAX_DAYS * _DAY:
        raise ConfigError(f"a link lasts at most {MAX_DAYS} days: --for {DAYS}d")
    tokens = Tokens(tokens_path(home))
    if not any(token.allows("admin") for token in tokens.all()):
        raise ConfigError(
            "whoever reaches this hub can read all of it, so a link to one run keeps nobody out: share its address "
            f"(stepscope open {args.run} --print), or create tokens first (stepscope hub token create --scope admin)"
        )
    with open_run(home, args.run) as (client, run):
        project = client.get("/api/runs/{run}", run=run)["project"]
    token, text = tokens.create(["share"], project=project, name=f"link to {run}", run=run, seconds=args.seconds)
    url = f"{address.rstrip('/')}/#/share/{text}/{quote(run, safe='')}"
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.expires))
    if args.json:
        print(dumps({"run": run, "url": url, "token": token.id, "expires": token.expires}))
        return 0
    print(url)
    print(f"shows {run} to whoever has it, until {until}; stepscope hub token revoke {token.id} ends it")
    return 0
