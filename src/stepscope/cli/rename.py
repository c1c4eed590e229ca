"""`stepscope rename`: give a run another name."""

import argparse

from stepscope.cli import text
from stepscope.cli.editing import MEANT, editing, say
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.model.edits import LONGEST_NAME, Change
from stepscope.model.errors import ConfigError


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "rename", "give a run another name", command)
    made.add_argument("run", metavar="RUN", help=MEANT)
    made.add_argument("name", metavar="NAME", help="its name from now on; its id stays")


def command(args: argparse.Namespace) -> int:
    """Give a run another name."""
    name = args.name.strip()
    if not 0 < len(name) <= LONGEST_NAME:
        raise ConfigError(f"a name has 1 to {LONGEST_NAME} characters")
    with editing(home_of(args), args.run) as run:
        now = run.edit(Change(name=name))
        say(args, run.run, now, f"{run.run} is now called {text.clean(str(now.name))}")
    return 0
