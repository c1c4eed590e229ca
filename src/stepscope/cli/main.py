"""The `stepscope` command: its arguments, its exit codes, and quiet ends on Ctrl-C and broken pipes."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

from stepscope import __version__
from stepscope.cli import (
    alerts,
    demo,
    doctor,
    edit,
    export,
    findings,
    hub,
    import_runs,
    mcp,
    quarantine,
    report,
    runs,
    ship,
    show,
    step,
    store,
    tail,
    top,
)
from stepscope.cli.text import clean_lines
from stepscope.model.errors import StepscopeError

COMMANDS = (
    *(demo, hub, runs, show, findings, tail, top, report, step, export),
    *(edit, alerts, import_runs, mcp, store, ship, quarantine, doctor),
)
"""Each is a module with `add(commands)`, which registers its command or commands."""

OK, WRONG_USE, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    args = parser().parse_args(argv)
    try:
        code = int(args.command(args))
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


def _give_up_output() -> None:
    """Python flushes standard output again at exit; what is left goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    top = argparse.ArgumentParser(prog="stepscope", description="A stethoscope for training runs.")
    top.add_argument("--version", action="version", version=f"stepscope {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top
