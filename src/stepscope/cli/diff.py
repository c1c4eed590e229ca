"""`stepscope diff`: what differs between two runs: settings, code, packages, environment and last values."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.journal_answers import RUN
from stepscope.cli.options import RUN_HELP, Commands, add_command, home_of, print_answer
from stepscope.cli.run_document import imported_share
from stepscope.cli.run_text import flatten
from stepscope.cli.stored_run import StoredRun, open_answers
from stepscope.cli.text import columns_of
from stepscope.hub.client import RUNS, open_http_client
from stepscope.journal.resolve_run import LATEST, PROBES, run_times
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.model.run_description import tag_text

SECTIONS = ("run", "settings", "git", "packages", "environment", "values")
_MACHINE = ("system/", "stepscope/")
_WIDEST_NAME = 32
_ABOUT = ("project", "name", "group", "job_type", "status", "step", "attempts", "ranks", "lasted", "tags", "notes")

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What two runs are compared by: sections of values by name."""

    run: str
    name: str
    sections: Mapping[str, Table]
    units: Mapping[str, str]
    imported: float | None
    """The share of its journals that a hub has read, while it is importing them: the rest is not compared."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "diff", "show what differs between two runs", command)
    default = f"{RUN_HELP}; one is compared with the latest, and none stands for the latest two"
    made.add_argument("run", nargs="*", metavar="RUN", help=default)
    made.add_argument("--all", action="store_true", help="show what is equal, and metrics of the machine, too")


def command(args: argparse.Namespace) -> int:
    """Print the differences."""
    home = home_of(args)
    first, second = (_facts(home, name) for name in _pair(home, args.run))
    if first.run == second.run:
        raise ConfigError(f"both are the run {first.run}: name another one")
    found = {name: _compared(first, second, name, everything=args.all) for name in SECTIONS}
    importing = {each.run: each.imported for each in (first, second) if each.imported is not None}
    answer = {"runs": [first.run, second.run], "importing": importing, **found}
    print_answer(args, answer, _lines(first, second, found, text.width()))
    return 0


def _pair(home: Path, names: Sequence[str]) -> Sequence[str]:
    if len(names) > 2:
        raise ConfigError(f"name two runs, not {len(names)}")
    if names:
        return names if len(names) == 2 else (*names, LATEST)
    times = {run: ns / 1e9 for run, ns in run_times(home).items()}
    if (client := open_http_client(home)) is not None:  # it may not have read the newest journals yet
        times |= {row["id"]: row["started"] or 0.0 for row in client.get(RUNS, limit=3)["runs"]}
    latest = sorted(times.keys() - {PROBES}, key=lambda run: (times[run], run), reverse=True)[:2]
    if len(latest) < 2:
        raise ConfigError(f"there are no two runs in {home}")
    return latest[::-1]


def _facts(home: Path, name: str) -> Facts:
    """Ask about a run."""
    with open_answers(home, name) as stored:
        return _told(stored)


def _told(stored: StoredRun) -> Facts:
    row, keys = stored.get(RUN), stored.get(f"{RUN}/keys")["keys"]
    tags = " ".join(tag_text(*tag) for tag in row["tags"].items())
    described = {**row, "tags": tags, "lasted": formatting.duration(row["duration"])}
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    sections["run"] = {name: described[name] for name in _ABOUT if described[name] not in ("", None)}
    sections["settings"] = dict(flatten(row["config"]))
    for name, value in flatten(row["environment"]):
        kind, _, rest = name.partition(".")
        sections[kind if kind in ("git", "packages") and rest else "environment"][name] = value
    sections["values"] = {each["key"]: each["last"] for each in keys}
    units = {each["key"]: each["unit"] for each in keys if each["unit"]}
    return Facts(row["id"], row["name"] or row["id"], sections, units, imported_share(row))


def _compared(first: Facts, second: Facts, section: str, *, everything: bool) -> dict[str, list[Any]]:
    """The values by name, of the first and of the second run; only those that differ unless `everything`."""
    old, new = first.sections[section], second.sections[section]
    names = list(dict.fromkeys((*old, *new)))
    if section == "values" and not everything:
        names = [name for name in names if not name.startswith(_MACHINE)]
    return {name: [old.get(name), new.get(name)] for name in names if everything or old.get(name) != new.get(name)}


def _lines(first: Facts, second: Facts, found: Mapping[str, Mapping[str, list[Any]]], width: int) -> Iterator[str]:
    names = [each.name if each.name == each.run else f"{each.name} ({each.run})" for each in (first, second)]
    yield text.paint(text.clean(f"- {names[0]}"), "red")
    yield text.paint(text.clean(f"+ {names[1]}"), "green")
    for each in (first, second):
        if each.imported is not None:
            yield text.clean(f"{each.run} is being imported, {each.imported:.0%} so far: the rest is not compared yet")
    for section, rows in found.items():
        if not rows:
            continue
        yield ""
        yield text.paint("LAST VALUES" if section == "values" else section.upper(), "bold")
        units = {**first.units, **second.units} if section == "values" else {}
        cells = [[name, *_cells(name, pair, units.get(name, ""), section)] for name, pair in rows.items()]
        yield from (f"  {line}" for line in _table(cells, width - 2))
    if not any(found.values()):
        yield "nothing differs"


def _cells(name: str, pair: list[Any], unit: str, section: str) -> list[str]:
    """Both values, and for metrics the difference."""
    if section != "values":
        return [formatting.MISSING if each is None else str(each) for each in pair]
    numbers = [each for each in pair if isinstance(each, (int, float))]
    change = formatting.signed(numbers[1] - numbers[0]) if len(numbers) == 2 else ""
    return [*(text.value_of(name, each, unit) for each in pair), change]


def _table(cells: list[list[str]], width: int) -> list[str]:
    """Rows without headings: the name, the first value, the second, and a difference."""
    wide = min(max(columns_of(row[0]) for row in cells), _WIDEST_NAME)
    room = (width - wide - 2 * len(cells[0])) // (len(cells[0]) - 1)
    widest = [min(max(columns_of(row[at]) for row in cells), room) for at in range(1, len(cells[0]))]
    limits = [wide, *widest]
    return [
        "  ".join(text.fill(text.clean(cell), most) for cell, most in zip(row, limits, strict=True)).rstrip()
        for row in cells
    ]
