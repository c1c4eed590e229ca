"""Arguments that several commands share: the home folder, `--json`, a run, and whole numbers."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from stepscope.sdk import settings

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
RUN_HELP = "a run id, the beginning of one, a name, or `latest`"


def add_command(
    commands: Commands,
    name: str,
    text: str,
    command: Callable[[argparse.Namespace], int],
    home: str = "STEPSCOPE_HOME, ~/.stepscope",
) -> argparse.ArgumentParser:
    """Register a command with the common options; `home` describes the default folder."""
    made = commands.add_parser(name, help=text, description=text)
    made.add_argument("--home", type=Path, help=f"the folder of all journals ({home})")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.set_defaults(command=command)
    return made


def integer(least: int = 0) -> Callable[[str], int]:
    """Return a parser of integers that are not below `least`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number < 2**63:
            bound = f" of {least} or more" if least > -(2**31) else " of 64 bits"
            raise argparse.ArgumentTypeError(f"must be an integer{bound}, got {text!r}")
        return number

    return read


def add_to_verbs(verbs: Commands) -> None:
    """Let each verb of a command accept the options of the command too; those after the verb take precedence."""
    for verb in verbs.choices.values():
        verb.add_argument("--home", type=Path, default=argparse.SUPPRESS, help="the folder of all journals")
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")


def home_of(args: argparse.Namespace) -> Path:
    """The home folder: the option, else the default of a run started here."""
    given: Path | None = args.home
    return settings.load({}).home if given is None else given.expanduser().absolute()
