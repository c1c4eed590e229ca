"""What commands share: the home folder, `--json` and the answer, a run, and whole numbers; unknown options."""

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from stepscope.model.errors import ConfigError
from stepscope.sdk import settings
from stepscope.wire.plain import dumps

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
RUN_HELP = "a run id, the beginning of one, a name, or `latest`"
LATEST_HELP = f"{RUN_HELP}, which is the default"


OTHER_WORDS = {
    "runs": ("list", "ls", "ps", "projects", "search", "find"),
    "hub": ("server", "serve", "start", "up", "web", "dashboard", "page"),
    "tail": ("log", "logs", "console"),
    "diff": ("compare", "config"),
    "delete": ("rm", "remove", "del"),
    "top": ("watch", "monitor", "live", "plot"),
    "show": ("describe", "info", "get", "status", "summary"),
    "findings": ("diagnose", "diagnosis", "errors", "why", "problems"),
    "sql": ("query", "select"),
    "ship": ("sync", "push", "upload"),
    "import": ("convert", "load"),
    "export": ("download", "dump", "pull"),
    "stop": ("kill", "cancel"),
    "checkpoints": ("artifacts", "artifact", "models"),
    "doctor": ("check", "verify"),
}
"""Words that other tools have for a command."""
ADVICE = {
    "help": "stepscope --help lists the commands, stepscope COMMAND --help the options of one",
    "version": "it is stepscope --version",
    "login": "there is no account; a hub with tokens takes STEPSCOPE_TOKEN",
    "init": "nothing has to be set up; a run begins in Python: run = stepscope.init(project=...)",
    "sweep": "a sweep is a loop or several processes with one group: docs/how/run-a-sweep.md",
    "agent": "a sweep is a loop or several processes with one group: docs/how/run-a-sweep.md",
}
"""What to do in place of commands that there are not."""
OPTION_ADVICE = {
    "--filter": "a filter needs no option: stepscope runs 'status = failed'",
    "--where": "a filter needs no option: stepscope runs 'status = failed'",
    "--project": "a filter has it: stepscope runs 'project = NAME'",
    "--limit": "it is -n",
}


class CommandParser(argparse.ArgumentParser):
    """A parser that names an unknown option, before the value of that option is taken for something else."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; an unknown option is an error, which proposes the nearest known one."""
        actions = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        verbs = {name: verb for each in actions for name, verb in each.choices.items()}
        later = [name for verb in verbs.values() for name in verb._option_string_actions]
        for option in _unknown(args or (), self._option_string_actions, verbs=bool(verbs)):
            if option in later:
                self.error(f"option {option} belongs after the command: {', '.join(verbs)}")
            near = difflib.get_close_matches(option, [*self._option_string_actions, *later], n=1)
            advice = OPTION_ADVICE.get(option) if self.prog.endswith(" runs") else None
            hint = f"; {advice}" if advice else "".join(f"; did you mean {each}?" for each in near)
            self.error(f"unknown option {option}{hint}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name an unknown command with the nearest known one, where argparse lists them all."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(unknown_command(value, action.choices))
        super()._check_value(action, value)


def unknown_command(name: str, known: Collection[str]) -> str:
    """Name an unknown command and what is meant by it, or the nearest known ones, else all of them."""
    meant = [command for command, words in OTHER_WORDS.items() if name in words and command in known]
    near = meant or difflib.get_close_matches(name, known, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known)}"
    if name in ADVICE and "runs" in known:
        hint = ADVICE[name]
    return f"unknown command {name!r}; {hint}"


def _unknown(args: Sequence[str], known: Mapping[str, argparse.Action], *, verbs: bool) -> Iterator[str]:
    """Yield the options that are not known; with `verbs`, up to the verb: what follows is for another parser."""
    is_value = False
    for text in args:
        if is_value or not _is_option(text):
            if text == "--" or (verbs and not is_value):
                return
            is_value = False
            continue
        option, equals, _ = text.partition("=")
        is_long = option.startswith("--")
        action = known.get(option if is_long else option[:2])
        if action is None and not (is_long and any(each.startswith(option) for each in known)):
            yield option
        is_value = option in known and known[option].nargs is None and not equals


def _is_option(text: str) -> bool:
    """Return whether argparse takes an argument for an option: it is neither a number nor a text with spaces."""
    return text[:1] == "-" and text not in ("-", "--") and " " not in text and not re.match(r"-\.?\d", text)


def add_command(
    commands: Commands,
    name: str,
    text: str,
    command: Callable[[argparse.Namespace], int],
    home: str = "STEPSCOPE_HOME, ~/.stepscope",
    *,
    json: bool = True,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Register a command with the common options; `home` describes the default folder."""
    made = commands.add_parser(name, help=text, description=text, aliases=aliases)
    made.add_argument("--home", type=Path, help=f"the folder of all journals ({home})")
    if json:
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


def print_answer(args: argparse.Namespace, answer: Any, words: str | Iterable[str]) -> None:
    """Print what a command found: as JSON where `--json` asks for it, else the text or the lines for people."""
    print(dumps(answer) if args.json else words if isinstance(words, str) else "\n".join(words))


def home_of(args: argparse.Namespace) -> Path:
    """The home folder: the option, else the default of a run started here; ConfigError when it is a file."""
    given: Path | None = args.home
    home = settings.load({}).home if given is None else given.expanduser().absolute()
    if home.is_file():
        raise ConfigError(f"the home must be a folder, but {home} is a file; choose one with --home or STEPSCOPE_HOME")
    return home
