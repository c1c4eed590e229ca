"""`stepscope show`: describe one run."""

import argparse

from stepscope.cli import text
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, print_answer
from stepscope.cli.run_document import look
from stepscope.cli.run_text import report
from stepscope.cli.stored_run import open_answers


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "show", "describe one run", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)


def command(args: argparse.Namespace) -> int:
    """Print the run."""
    home = home_of(args)
    with open_answers(home, args.run, journals_first=True) as stored:
        run = look(stored, home)
    lines = [] if args.json else report(run, text.width()).splitlines()
    print_answer(args, run.document, map(text.tinted_line, lines))
    return 0
