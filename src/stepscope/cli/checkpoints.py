"""`stepscope checkpoints`: list the checkpoints of a run with the metrics at their steps, and the best of them."""

import argparse
from collections.abc import Iterator
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, integer, print_answer
from stepscope.hub.client import RUNS, open_client, resolve_run
from stepscope.model import formatting

_MOST = 200
"""As many checkpoints as one answer has, among which the best is found."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "checkpoints", "list the checkpoints of a run, and the best of them", command)
    made.add_argument("run", metavar="RUN", nargs="?", default="latest", help=LATEST_HELP)
    made.add_argument("--best", metavar="KEY", help="the metric that decides which is the best")
    made.add_argument("--key", metavar="KEY", action="append", default=[], help="show this metric; may be repeated")
    made.add_argument("--limit", metavar="N", type=integer(1), default=50, help="at most so many, the newest (50)")


def command(args: argparse.Namespace) -> int:
    """Print the checkpoints, and the best of them last."""
    home = home_of(args)
    with open_client(home) as client:
        run = resolve_run(client, home, args.run)
        found = client.get(f"{RUNS}/{{run}}/checkpoints", run=run, key=args.key, best=args.best, limit=_MOST)
    print_answer(args, found, _lines(run, found, args.limit))
    return 0


def _lines(run: str, found: dict[str, Any], limit: int) -> Iterator[str]:
    if not found["checkpoints"]:
        yield f"{run} has recorded no checkpoints; record them with run.checkpoint(PATH)"
        return
    best, keys = found["best"], found["keys"]
    head = ["", ">STEP", ">SIZE", ">TOOK", *(f">{text.clean(key)}" for key in keys), "PATH"]
    there = [each for each in found["checkpoints"] if not each["replaced"]]
    rows = [_row(each, keys, best) for each in there[:limit]]
    yield from text.table(head, rows)
    left, replaced = found["total"] - found["replaced"] - len(rows), found["replaced"]
    if left:
        yield f"and {left} older ones"
    if replaced:
        yield f"and {replaced} that later ones at the same path replaced; --json lists them"
    if best is not None:
        yield f"best {text.clean(best['key'])}: {best['value']:.6g} at step {best['step']}: {text.clean(best['path'])}"


def _row(each: dict[str, Any], keys: list[str], best: dict[str, Any] | None) -> list[str]:
    values = [each["values"].get(key, {}).get("value") for key in keys]
    return [
        "*" if best is not None and best["id"] == each["id"] else "",
        "-" if each["step"] is None else str(each["step"]),
        "-" if each["bytes"] is None else formatting.size(each["bytes"]),
        "-" if each["seconds"] is None else f"{each['seconds']:.3g} s",
        *(
            "-" if value is None else f"{value:.6g}" if isinstance(value, int | float) else str(value)
            for value in values
        ),
        each["path"] + (f" (version {each['version']})" if each["version"] > 1 else ""),
    ]
