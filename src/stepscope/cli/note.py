"""`stepscope note`: set the notes of a run, or print them."""

import argparse

from stepscope.cli.editing import MEANT, editing, say
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.model.edits import LONGEST_NOTES, Change
from stepscope.model.errors import ConfigError


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "note", "set the notes of a run, or print them", command)
    made.add_argument("run", metavar="RUN", help=MEANT)
    made.add_argument("text", metavar="TEXT", nargs="?", help="the notes; an empty text removes them")


def command(args: argparse.Namespace) -> int:
    """Set the notes, and print those that the run has then."""
    if args.text is not None and len(args.text) > LONGEST_NOTES:
        raise ConfigError(f"notes have at most {LONGEST_NOTES} characters")
    with editing(home_of(args), args.run) as run:
        now = run.describe() if args.text is None else run.edit(Change(notes=args.text))
        say(args, run.run, now, now.notes or f"{run.run} has no notes")
    return 0
