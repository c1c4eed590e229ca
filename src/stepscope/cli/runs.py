"""`stepscope runs`: list the runs of a home folder, the latest first."""

import argparse
import time
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.hub_runs import known
from stepscope.cli.listed_run import ListedRun, listed_run
from stepscope.cli.options import Commands, add_command, home_of, integer
from stepscope.hub.client import MOST
from stepscope.journal.resolve_run import runs_by_age
from stepscope.journal.run_edits import Edits
from stepscope.model import formatting
from stepscope.model.run_description import Description, apply, tag_text
from stepscope.wire.plain import dumps, plain

SHOWN = 50
_HEAD = ("RUN", "PROJECT/NAME", "STATUS", ">STEP", ">ATT", ">RANKS", "STARTED", ">LASTED", ">SIZE")


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "runs", "list the runs, the latest first", command)
    made.add_argument("-n", type=integer(1), metavar="N", help=f"at most N runs (default {SHOWN}; with --json all)")
    made.add_argument("--archived", action="store_true", help="show archived runs too")


def command(args: argparse.Namespace) -> int:
    """Print the runs."""
    home = home_of(args)
    most = args.n if args.n is not None else None if args.json else SHOWN
    shown, total, hidden = _look(home, most, archived=args.archived)
    if args.json:
        print(dumps([as_json(each) for each in shown]))
        return 0
    if not total:
        print(f"no runs in {home}" + (f"; {hidden} archived, --archived shows them" if hidden else ""))
        if (home / "hub" / "journal").is_dir():
            print(f"what a hub received is listed while it runs: stepscope hub --home {home}")
        return 0
    print("\n".join(_lines(shown, text.width())))
    if len(shown) < total:
        print(f"\n{len(shown)} of {total} runs shown; -n {total} shows all")
    return 0


def _look(home: Path, most: int | None, *, archived: bool) -> tuple[list[ListedRun], int, int]:
    """The latest runs, how many there are, and how many archived ones are left out.

    Rows come from the hub, and from journals for what it does not have yet.
    """
    names = runs_by_age(home)
    found = known(home, MOST if most is None else most, archived=archived)
    here = names if found is None else [run for run in names if run not in found.ids]
    total = len(here) + (0 if found is None else len(found.ids))
    hidden = 0 if archived else _archived(home, here) + (0 if found is None else found.archived)
    limit = total if most is None else most
    shown: list[ListedRun] = []
    for seen in (*(listed_run(home, run) for run in here), *(() if found is None else found.latest)):
        if len(shown) >= limit:
            break
        shown += [seen] if archived or not seen.archived else []
    return shown, total - hidden, hidden


def _archived(home: Path, runs: list[str]) -> int:
    """Count the archived runs; only edits archive a run, so no journal is read."""
    edits = Edits(home)
    return sum(apply(Description(), edits.of(run)).archived for run in runs)


def as_json(seen: ListedRun) -> dict[str, Any]:
    """A run as JSON."""
    times = {
        "started": text.iso(seen.started),
        "ended": text.iso(seen.ended),
        "duration_seconds": seen.duration,
        "edited": text.iso(seen.edited),
    }
    return {**{name: value for name, value in plain(seen).items() if name != "units"}, **times}


def _lines(shown: list[ListedRun], width: int) -> list[str]:
    rows = [_row(each) for each in shown]
    lines = text.table(_HEAD, rows, limits=_limits(rows, width))
    out = lines[:1]
    for each, line in zip(shown, lines[1:], strict=True):
        details = _details(each)
        out += [line, text.cut(f"  {details}", width)] if details else [line]
    return out


def _limits(rows: list[list[str]], width: int) -> dict[str, int]:
    """Divide the remaining width between the id, which has priority, and the name."""
    cells = [[name.lstrip(">") for name in _HEAD], *rows]
    run, name, *others = (max(len(row[column]) for row in cells) for column in range(len(_HEAD)))
    room = width - sum(others) - 2 * (len(_HEAD) - 1)
    run = max(min(run, room - min(name, 16)), 8)
    return {"RUN": run, "PROJECT/NAME": max(room - run, 8)}


def _row(seen: ListedRun) -> list[str]:
    return [
        seen.run,
        f"{seen.project}/{seen.name}" if seen.name else seen.project,
        seen.status if seen.imported is None else f"{seen.status} {seen.imported:.0%}",
        formatting.ordinal(seen.last_step),
        str(seen.attempts),
        str(seen.ranks),
        _short_moment(seen.started),
        formatting.duration(seen.duration),
        formatting.size(seen.size),
    ]


def _details(seen: ListedRun) -> str:
    """The second line of a run: what needs attention, then its last values."""
    parts = ["archived"] if seen.archived else []
    parts += [text.clean(" ".join(tag_text(*tag) for tag in seen.tags.items()))] if seen.tags else []
    parts += [f"{seen.findings} finding{'s' * (seen.findings > 1)}"] if seen.findings else []
    parts += [f"{seen.alerts} alert{'s' * (seen.alerts > 1)}"] if seen.alerts else []
    parts += [f"{seen.damaged} damaged"] if seen.damaged else []
    values = {key: text.value_of(key, value, seen.units.get(key, "")) for key, value in seen.values.items()}
    parts += [f"{text.clean(key)} {value}" for key, value in values.items()]
    return "   ".join(parts)


def _short_moment(ns: int | None) -> str:
    """The time of day for today, else the date."""
    if not ns:
        return "-"
    then, today = time.localtime(ns / 1e9), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d", then)
