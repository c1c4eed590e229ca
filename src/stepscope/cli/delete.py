"""`stepscope delete`: delete runs for good, after asking."""

import argparse
import sys

from stepscope.cli import text
from stepscope.cli.editing import MEANT, editing
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.cli.plain import dumps
from stepscope.journal.deleting import run_bytes
from stepscope.model import formatting
from stepscope.model.errors import ConfigError


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "delete", "delete runs: journals, stored rows, quarantined records", command)
    made.add_argument("run", metavar="RUN", nargs="+", help=MEANT)
    made.add_argument("--yes", action="store_true", help="do not ask")


def command(args: argparse.Namespace) -> int:
    """Delete runs one by one; 1 when a run was kept because the answer was not yes."""
    kept, freed = 0, []
    for each in args.run:
        with editing(home_of(args), each) as run:
            if not args.yes and not _agreed(_question(args, run.run, run.describe().name)):
                print(f"{run.run} was kept", file=sys.stderr)
                kept += 1
                continue
            found = run.delete()
            freed.append({"run": run.run, "bytes": sum(found.values()), "freed": found})
            if not args.json:
                print(_words(run.run, found))
    if args.json:
        print(dumps(freed))
    return 1 if kept else 0


def _question(args: argparse.Namespace, run: str, name: str | None) -> str:
    called = f" ({text.clean(name)})" if name else ""
    size = formatting.size(run_bytes(home_of(args), run))
    return f"Delete the run {run}{called} with {size} of journals? This cannot be undone. [y/N] "


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: say --yes to delete")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _words(run: str, freed: dict[str, int]) -> str:
    parts = [f"{formatting.size(size)} of {_PLACES.get(place, place)}" for place, size in freed.items() if size]
    return f"{run} is deleted; {', '.join(parts) or 'nothing on disk'} freed"


_PLACES = {"journals": "journals", "quarantine": "quarantined records", "store": "the hub's store (about)"}
