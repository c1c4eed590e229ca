"""`stepscope tag`, `note`, `rename`, `archive` and `delete`: the commands that change a run."""

import argparse
import sys
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import RUN_HELP, Commands, add_command, home_of, print_answer
from stepscope.cli.run_editor import open_editor
from stepscope.journal.run_edits import run_bytes
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.model.run_description import (
    LONGEST_NAME,
    LONGEST_NOTES,
    MAX_TAGS,
    Change,
    Description,
    read_tags,
    tag_text,
)
from stepscope.wire.plain import dumps

_PLACES = {
    "journals": "journals",
    "quarantine": "quarantined records",
    "store": "the hub's store (about)",
    "files": "uploaded files",
}


def add(commands: Commands) -> None:
    """Register the commands."""
    tags = add_command(commands, "tag", "tag a run, or list its tags", tag)
    tags.add_argument("run", metavar="RUN", help=RUN_HELP)
    tags.add_argument("tags", metavar="TAG", nargs="*", help="a tag, NAME or NAME=VALUE")
    tags.add_argument("--remove", metavar="NAME", action="append", default=[], help="remove this tag; may be repeated")
    notes = add_command(commands, "note", "set the notes of a run, or print them", note)
    notes.add_argument("run", metavar="RUN", help=RUN_HELP)
    notes.add_argument("text", metavar="TEXT", nargs="?", help="the notes; an empty text removes them")
    renamed = add_command(commands, "rename", "give a run another name", rename)
    renamed.add_argument("run", metavar="RUN", help=RUN_HELP)
    renamed.add_argument("name", metavar="NAME", help="the new name; the id is unchanged")
    archived = add_command(commands, "archive", "hide runs from lists, or show them again", archive)
    archived.add_argument("run", metavar="RUN", nargs="+", help=RUN_HELP)
    archived.add_argument("--undo", action="store_true", help="unarchive them")
    deleted = add_command(commands, "delete", "delete runs: journals, stored rows, quarantined records", delete)
    deleted.add_argument("run", metavar="RUN", nargs="+", help=RUN_HELP)
    deleted.add_argument("--yes", action="store_true", help="do not ask")


def tag(args: argparse.Namespace) -> int:
    """Set and remove tags, then print the tags of the run."""
    change: dict[str, Any] = {**read_tags(args.tags), **dict.fromkeys(args.remove)}
    if len(change) > MAX_TAGS:
        raise ConfigError(f"a run has at most {MAX_TAGS} tags")
    with open_editor(home_of(args), args.run) as run:
        now = run.edit(Change(tags=change)) if change else run.describe()
        words = [text.clean(tag_text(name, value)) for name, value in now.tags.items()]
        _print(args, run.run, now, "\n".join(words) if words else f"{run.run} has no tags")
    return 0


def note(args: argparse.Namespace) -> int:
    """Set the notes, then print the notes of the run."""
    if args.text is not None and len(args.text) > LONGEST_NOTES:
        raise ConfigError(f"notes have at most {LONGEST_NOTES} characters")
    with open_editor(home_of(args), args.run) as run:
        now = run.describe() if args.text is None else run.edit(Change(notes=args.text))
        _print(args, run.run, now, text.clean_lines(now.notes) or f"{run.run} has no notes")
    return 0


def rename(args: argparse.Namespace) -> int:
    """Give a run another name."""
    name = args.name.strip()
    if not 0 < len(name) <= LONGEST_NAME:
        raise ConfigError(f"a name has 1 to {LONGEST_NAME} characters")
    with open_editor(home_of(args), args.run) as run:
        now = run.edit(Change(name=name))
        _print(args, run.run, now, f"{run.run} is now called {text.clean(str(now.name))}")
    return 0


def archive(args: argparse.Namespace) -> int:
    """Hide runs from lists, or show them again."""
    for each in args.run:
        with open_editor(home_of(args), each) as run:
            now = run.edit(Change(archived=not args.undo))
            _print(args, run.run, now, f"{run.run} is {'archived' if now.archived else 'no longer archived'}")
    return 0


def delete(args: argparse.Namespace) -> int:
    """Delete runs one by one; 1 when a run was kept because the answer was not yes."""
    kept, freed = 0, []
    for each in args.run:
        with open_editor(home_of(args), each) as run:
            if not args.yes and not _confirmed(_question(args, run.run, run.describe().name)):
                print(f"{run.run} was not deleted", file=sys.stderr)
                kept += 1
                continue
            found = run.delete()
            freed.append({"run": run.run, "bytes": sum(found.values()), "freed": found})
            if not args.json:
                print(_freed(run.run, found))
    if args.json:
        print(dumps(freed))
    return 1 if kept else 0


def _question(args: argparse.Namespace, run: str, name: str | None) -> str:
    called = f" ({text.clean(name)})" if name else ""
    size = formatting.size(run_bytes(home_of(args), run))
    return f"Delete the run {run}{called} with {size} of journals? This cannot be undone. [y/N] "


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to confirm on: use --yes to delete")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _freed(run: str, freed: dict[str, int]) -> str:
    parts = [f"{formatting.size(size)} of {_PLACES.get(place, place)}" for place, size in freed.items() if size]
    return f"{run} is deleted; {', '.join(parts) or 'nothing on disk'} freed"


def _print(args: argparse.Namespace, run: str, now: Description, words: str) -> None:
    """Print a run's description as JSON, or the words for people."""
    about = {"run": run, "name": now.name, "notes": now.notes, "tags": now.tags, "archived": now.archived}
    print_answer(args, about, words)
