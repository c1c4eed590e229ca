"""`stepscope show`: describe one run."""

import argparse
from pathlib import Path

from stepscope.cli import text
from stepscope.cli.findings import findings_of, time_words
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of
from stepscope.cli.run_document import RunLook, look, look_at_hub, look_at_journals
from stepscope.cli.run_text import report
from stepscope.cli.stored_run import StoredRun
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
    _print(args, look_at_journals(look(home, run), findings_of(home, run), time_words(home, run)))
    return 0


def _show_stored(args: argparse.Namespace, home: Path) -> None:
    """Print a run that only the hub knows."""
    with open_client(home) as client:
        _print(args, look_at_hub(StoredRun(client, resolve_run(client, home, args.run)), home))


def _print(args: argparse.Namespace, run: RunLook) -> None:
    lines = [] if args.json else report(run, text.width()).splitlines()
    print(dumps(run.document) if args.json else "\n".join(map(text.tinted_line, lines)))
