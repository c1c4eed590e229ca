"""`stepscope tag`: set and remove tags of a run, or list them."""

import argparse
from typing import Any

from stepscope.cli import text
from stepscope.cli.editing import MEANT, editing, say
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.model.edits import MOST_TAGS, Change, read_tags, spell_tag
from stepscope.model.errors import ConfigError


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "tag", "tag a run, or list its tags", command)
    made.add_argument("run", metavar="RUN", help=MEANT)
    made.add_argument("tags", metavar="TAG", nargs="*", help="a tag, NAME or NAME=VALUE")
    made.add_argument("--remove", metavar="NAME", action="append", default=[], help="remove this tag; may be repeated")


def command(args: argparse.Namespace) -> int:
    """Set and remove tags, and print those that the run has then."""
    change: dict[str, Any] = {**read_tags(args.tags), **dict.fromkeys(args.remove)}
    if len(change) > MOST_TAGS:
        raise ConfigError(f"a run has at most {MOST_TAGS} tags")
    with editing(home_of(args), args.run) as run:
        now = run.edit(Change(tags=change)) if change else run.describe()
        words = [text.clean(spell_tag(name, value)) for name, value in now.tags.items()]
        say(args, run.run, now, "\n".join(words) if words else f"{run.run} has no tags")
    return 0
