"""`stepscope archive`: hide runs from lists, or show them again."""

import argparse

from stepscope.cli.editing import MEANT, editing, say
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.model.edits import Change


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "archive", "hide runs from lists, or show them again", command)
    made.add_argument("run", metavar="RUN", nargs="+", help=MEANT)
    made.add_argument("--undo", action="store_true", help="show them again")


def command(args: argparse.Namespace) -> int:
    """Hide runs from lists, or show them again."""
    for each in args.run:
        with editing(home_of(args), each) as run:
            now = run.edit(Change(archived=not args.undo))
            say(args, run.run, now, f"{run.run} is {'archived' if now.archived else 'not archived any more'}")
    return 0
