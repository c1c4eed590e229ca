"""The `stepscope` command: its arguments, its exit codes, and quiet ends on Ctrl-C and broken pipes."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from stepscope import __version__
from stepscope.cli.options import CommandParser, unknown_command
from stepscope.cli.text import clean_lines
from stepscope.model.errors import StepscopeError

COMMANDS = {
    **{
        name: name
        for name in ("demo", "hub", "open", "runs", "show", "findings", "diff", "tail", "top", "report", "step")
    },
    **{name: name for name in ("samples", "share", "sql", "export")},
    **dict.fromkeys(("tag", "note", "rename", "archive", "delete"), "edit"),
    "checkpoints": "checkpoints",
    **dict.fromkeys(("stop", "set"), "control"),
    "alerts": "alerts",
    "import": "import_runs",
    "ui": "hub",
    **{name: name for name in ("mcp", "store", "ship", "quarantine", "doctor", "completion")},
}
"""The module of each command; its `add(commands)` registers it."""

OK, WRONG_USE, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    given = sys.argv[1:] if argv is None else argv
    args = parser(given[:1]).parse_args(given) if given else None
    try:
        code = _say_next() if args is None else int(args.command(args))
        sys.stdout.flush()
        return code
    except StepscopeError as error:
        print(clean_lines(f"stepscope: {error}"), file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_output()
        return BROKEN_PIPE
    except OSError as error:
        _give_up_output()
        where = f"{error.filename}: " if error.filename else ""
        print(clean_lines(f"stepscope: {where}{error.strerror or error}"), file=sys.stderr)
        return WRONG_USE


def _say_next() -> int:
    from stepscope.cli import next_steps
    from stepscope.sdk.settings import load

    print("\n".join(next_steps.lines(load({}).home)))
    return OK


def _give_up_output() -> None:
    """Python flushes standard output again at exit; what is left goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser(named: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the parser of the command that is named; of all commands when none is."""
    top = CommandParser(prog="stepscope", description="A stethoscope for training runs.")
    top.add_argument("--version", action="version", version=f"stepscope {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in named:
        if name not in COMMANDS and not name.startswith("-"):
            top.error(unknown_command(name, COMMANDS))  # without importing all of them
    modules = {COMMANDS[name] for name in named if name in COMMANDS} or dict.fromkeys(COMMANDS.values())
    for name in modules:
        import_module(f"stepscope.cli.{name}").add(commands)
    return top
