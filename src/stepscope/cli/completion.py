"""`stepscope completion`: the script that completes commands, options and runs in bash, zsh and fish."""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from stepscope.cli.options import Commands, add_command, home_of

SHELLS = {
    "bash": """\
_stepscope() {
  local IFS=$'\\n'
  COMPREPLY=($(stepscope completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _stepscope stepscope""",
    "zsh": """\
#compdef stepscope
_stepscope() {
  local -a found
  found=("${(@f)$(stepscope completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n ${found[1]} ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _stepscope stepscope""",
    "fish": """\
function __stepscope_words
    set -l now (commandline -ct)
    stepscope completion words -- (commandline -opc)[2..] "$now" 2>/dev/null
end
complete -c stepscope -a '(__stepscope_words)'""",
}
"""The scripts; each asks `stepscope completion words` for what may come next."""
INSTALL = {
    "bash": "stepscope completion bash >> ~/.bashrc",
    "zsh": "stepscope completion zsh >> ~/.zshrc",
    "fish": "stepscope completion fish > ~/.config/fish/completions/stepscope.fish",
}
TAKE_RUNS = frozenset(
    [
        "archive",
        "checkpoints",
        "delete",
        "diff",
        "export",
        "findings",
        "note",
        "open",
        "rename",
        "report",
        "samples",
        "set",
        "share",
        "show",
        "step",
        "stop",
        "tag",
        "tail",
        "top",
    ]
)
"""Commands whose arguments are runs: known here, so that no other module is imported to complete one."""
MAX_NAMES = 200
"""Names are read from the journals of so many runs, the latest."""
_PLAIN = re.compile(r"[\w.+@%/-]+")


def add(commands: Commands) -> None:
    """Register the command."""
    text = "print the script that completes commands, options and runs"
    made = add_command(commands, "completion", text, command, json=False)
    made.description = f"{text}, such as: {'; '.join(INSTALL.values())}"
    made.add_argument("shell", choices=(*SHELLS, "words"), help="the shell; `words` is for its script")
    made.add_argument("given", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def command(args: argparse.Namespace) -> int:
    """Print the script, or the words that may come next."""
    if args.shell != "words":
        print(SHELLS[args.shell])
        return 0
    given = args.given[1:] if args.given[:1] == ["--"] else args.given  # which some versions of argparse leave there
    *before, begun = given or [""]
    for word in dict.fromkeys(words(before, begun, args)):
        if word.startswith(begun):
            print(word)
    return 0


def words(before: Sequence[str], begun: str, args: argparse.Namespace) -> Iterable[str]:
    """The words that may follow those before, the last of which has begun; more than match it."""
    from stepscope.cli.main import COMMANDS, parser  # which imports this module by name

    if not before:
        return (*COMMANDS, "--help", "--version")
    if before[-1] == "--home" or before[0] not in COMMANDS:
        return ()
    if begun.startswith("-"):
        return _options(parser(before[:1]), before)
    if before[0] in TAKE_RUNS:
        return _runs(_home(before, args))
    return _verbs(parser(before[:1]), before)


def _home(before: Sequence[str], args: argparse.Namespace) -> Path:
    for option, value in pairwise(before):
        if option == "--home":
            return Path(value).expanduser().absolute()
    return home_of(args)


def _innermost(top: argparse.ArgumentParser, before: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command, or of its verb."""
    for word in before:
        top = next((each.choices[word] for each in _choices(top) if word in each.choices), top)
    return top


def _choices(parser: argparse.ArgumentParser) -> "Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _options(top: argparse.ArgumentParser, before: Sequence[str]) -> Iterable[str]:
    return (each for each in _innermost(top, before)._option_string_actions if each.startswith("--"))


def _verbs(top: argparse.ArgumentParser, before: Sequence[str]) -> Iterator[str]:
    for action in _innermost(top, before)._actions:
        if not action.option_strings and action.choices is not None:
            yield from map(str, action.choices)


def _runs(home: Path) -> Iterator[str]:
    """Ids and names of the runs in a home folder, the latest first; names that a shell would split are left out."""
    from stepscope.journal.resolve_run import LATEST, name_of, runs_by_age

    found = runs_by_age(home)
    yield LATEST
    yield from found
    for name in islice((name_of(home, run) for run in found), MAX_NAMES):
        if name and _PLAIN.fullmatch(name):
            yield name
