"""`stepscope show`: describe one run."""

import argparse
from pathlib import Path

from stepscope.cli import hub_runs, text
from stepscope.cli.findings import findings_of, time_words
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of
from stepscope.cli.run_document import from_hub, from_journals
from stepscope.cli.run_text import look, report
from stepscope.cli.stored_run import RUN, StoredRun
from stepscope.hub.client import open_client, resolve_run
from stepscope.hub.home import address_of
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.wire.plain import dumps


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "show", "describe one run", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)


def command(args: argparse.Namespace) -> int:
    """Print the run."""
    home = home_of(args)
    try:
        run = find_run(home, args.run)
    except UnknownRun:
        if address_of(home) is None:
            raise
        _show_stored(args, home)
        return 0
    shown = look(home, run)._replace(findings=findings_of(home, run), time=time_words(home, run))
    lines = [] if args.json else report(shown, text.width()).splitlines()
    print(dumps(from_journals(shown)) if args.json else "\n".join(map(text.tinted_line, lines)))
    return 0


def _show_stored(args: argparse.Namespace, home: Path) -> None:
    """Print a run that only the hub knows."""
    with open_client(home) as client:
        stored = StoredRun(client, resolve_run(client, home, args.run))
        if args.json:
            print(dumps(from_hub(stored, home)))
        else:
            print("\n".join(hub_runs.report({**stored.get(RUN), **stored.get(f"{RUN}/keys")})))
