"""`stepscope samples`: the rows of a table of samples at a step, or those with a text."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.cli import text
from stepscope.cli.hub_runs import open_run
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, integer, print_answer
from stepscope.model import formatting
from stepscope.wire.plain import dumps

PATH = "/api/runs/{run}/samples"
CHARS = 4000
"""Characters of each text that are printed."""
INDENT = "  "
MAX_NAME = 24


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "samples", "print prompts, completions and other samples of a run", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    made.add_argument("--step", type=int, metavar="N", help="the last step with rows at or before N (the last)")
    made.add_argument("--table", metavar="TABLE", help="the table (the largest)")
    made.add_argument("--grep", metavar="TEXT", help="rows with this text, at any step unless one is given")
    made.add_argument("--sort", metavar="COLUMN", help="order by this column; -COLUMN descending")
    made.add_argument("-n", "--limit", type=integer(1), default=20, metavar="N", help="at most N rows (20)")


def command(args: argparse.Namespace) -> int:
    """Print the samples."""
    wanted = {"table": args.table, "step": args.step, "q": args.grep, "sort": args.sort, "limit": args.limit}
    with open_run(home_of(args), args.run) as (client, run):
        given = {name: value for name, value in wanted.items() if value is not None}
        answer = client.get(PATH, run=run, chars=CHARS, **given)
    print_answer(args, answer, _lines(answer))
    return 0


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer["table"] is None:
        yield f"{answer['run']} has no samples; record some with run.sample(prompt=..., completion=...)"
        return
    place = "" if answer["step"] is None else f" at step {answer['step']}"
    yield text.clean(f"{answer['table']} of {answer['run']}{place}")
    others = [f"{each['name']} ({formatting.amount(each['rows'], 'row')})" for each in answer["tables"]]
    if len(others) > 1:
        yield text.clean(f"tables: {', '.join(others)}")
    for row in answer["rows"]:
        yield ""
        yield f"step {row['step']}, rank {row['rank']}"
        for name, value in row["cells"].items():
            yield from _cell(name, value, row["cut"].get(name))
    if not answer["rows"]:
        yield "no rows match"
    if answer["next"] is not None or answer["searched_from"] is not None:
        yield ""
        yield "there are more rows; narrow the search, or ask for more with --limit"


def _cell(name: str, value: Any, length: int | None) -> Iterator[str]:
    shown = value if isinstance(value, str) else dumps(value, indent=None)
    first, *rest = shown.splitlines() or [""]
    yield f"{INDENT}{text.clean(text.cut(name, MAX_NAME))}: {text.clean(first)}"
    yield from (f"{INDENT * 2}{text.clean(line)}" for line in rest)
    if length is not None:
        yield f"{INDENT * 2}… ({length} characters)"
