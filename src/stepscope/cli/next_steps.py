"""What `stepscope` prints without arguments: what there is in the home folder, and what to do next."""

from collections.abc import Iterator
from pathlib import Path

from stepscope.cli import text
from stepscope.hub.client import find_anywhere
from stepscope.journal.layout import address_of, list_runs
from stepscope.journal.resolve_run import LATEST, UnknownRun, name_of
from stepscope.model.formatting import amount

_FIRST = """\
Record a run, in any Python program:

  import stepscope
  run = stepscope.init(project="first")
  run.log({"loss": 0.5})
"""


def lines(home: Path) -> Iterator[str]:
    """Describe the home folder, and the next commands in it."""
    yield text.paint("A stethoscope for training runs.", "bold")
    yield ""
    address, number = address_of(home), len(list_runs(home))
    if address:
        yield f"The hub of {home} is at {address}"
    if number:
        yield f"{amount(number, 'run')} in {home}; the latest is {_latest(home)}"
        yield ""
        steps = _with_runs(address)
    else:
        yield f"No runs in {home} yet."
        yield ""
        yield _FIRST
        steps = _without_runs(address)
    yield from (f"  stepscope {command:<16} {what}" for command, what in steps)
    yield ""
    yield "stepscope --help lists all commands, stepscope COMMAND --help the options of one."


def _latest(home: Path) -> str:
    try:
        run = find_anywhere(home, LATEST)
    except UnknownRun:
        return "gone"
    name = name_of(home, run)
    return text.clean(f"{name} ({run})" if name else run)


def _with_runs(address: str | None) -> Iterator[tuple[str, str]]:
    yield "findings", "what went wrong in it, and what to do"
    yield "top", "watch it in the terminal"
    yield ("open", "open it on the page") if address else ("hub", "start the hub, with the page")
    yield "runs", "list the runs; runs --help tells how to filter and sort them"
    yield "diff", "what differs between the latest two"


def _without_runs(address: str | None) -> Iterator[tuple[str, str]]:
    yield "demo", "train a small model in which things go wrong, and open the page"
    yield "import PATH", "bring runs that other tools recorded"
    if not address:
        yield "hub", "start the hub, with the page, on http://127.0.0.1:4318"
    yield "completion bash", "complete commands and runs in the shell; also zsh, fish"
