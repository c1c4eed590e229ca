"""`stepscope runs`: list the runs of a home folder, the latest first, or those that match a filter."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.cli import run_columns, text
from stepscope.cli.hub_runs import known, leading_keys, stored_row
from stepscope.cli.listed_run import ListedRun, listed_run
from stepscope.cli.options import Commands, add_command, home_of, integer
from stepscope.cli.run_columns import short_moment
from stepscope.cli.text import columns_of
from stepscope.hub.client import MOST, PATIENCE_SECONDS, PAUSE_SECONDS, RUNS, HubClient, open_client, still_reading
from stepscope.journal.resolve_run import runs_by_age
from stepscope.journal.run_edits import Edits
from stepscope.model import formatting
from stepscope.model.run_description import Description, apply, tag_text
from stepscope.wire.plain import dumps, plain

SHOWN = 50
_WIDEST = 24
_WIDEST_GROUP = 40
_VALUES = 4
"""Metrics of groups, where no columns are asked for."""
_WIDEST_ID = 36
"""An id of 32 digits, with four dashes."""
_NARROWEST_NAME = 16
_LEAVES_FIRST = (">SIZE", ">ATT", ">RANKS", ">LASTED", "STARTED")
"""Columns that a narrow terminal does without, the least important first."""
_HEAD = ("RUN", "PROJECT/NAME", "STATUS", ">STEP", ">ATT", ">RANKS", "STARTED", ">LASTED", ">SIZE")


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "runs", "list the runs, the latest first, or those that match a filter", command)
    conditions = "words, or conditions such as 'status = failed and config.lr < 0.1 and best.loss < 2'"
    made.add_argument("filter", nargs="*", metavar="FILTER", help=conditions)
    made.add_argument("--sort", metavar="FIELD", help="sort by a field: started, min.loss, config.lr; the lowest first")
    made.add_argument("-r", "--reverse", action="store_true", help="the highest first")
    fields = "fields to show, with commas between: loss,best.accuracy,last10.loss,acc@best.loss,config.lr,duration"
    made.add_argument("-c", "--columns", action="append", default=[], metavar="FIELDS", help=fields)
    made.add_argument("--group", metavar="FIELD", help="a row for each group of runs with the same value: config.lr")
    made.add_argument("-n", type=integer(1), metavar="N", help=f"at most N runs (default {SHOWN}; with --json all)")
    made.add_argument("--archived", action="store_true", help="show archived runs too")


def command(args: argparse.Namespace) -> int:
    """Print the runs."""
    home = home_of(args)
    most = args.n if args.n is not None else None if args.json else SHOWN
    if args.filter or args.sort or args.columns or args.reverse or args.group:
        with open_client(home) as client:
            return _print_chosen(client, home, args, MOST if most is None else most)
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


def _print_chosen(client: HubClient, home: Path, args: argparse.Namespace, most: int) -> int:
    """Print the runs that the hub's table has for a filter, an order and columns."""
    if client.problem:
        print(f"stepscope: the newest records are missing from this output: {client.problem}", file=sys.stderr)
    known = client.get("/api/fields")
    names = [name.strip() for each in args.columns for name in each.split(",") if name.strip()]
    columns = [run_columns.field(name, known["plain"]) for name in names]
    metrics = run_columns.metrics_among(columns)
    if not columns:
        metrics = leading_keys(client, client.get(RUNS, limit=MOST, archived="show")["runs"])
    chosen = {"filter": " ".join(args.filter) or None, "sort": _order(args, known["plain"]), "metric": metrics}
    chosen["column"] = list(filter(run_columns.is_of_points, columns))
    chosen["archived"] = "show" if args.archived else "hide"
    if args.group:
        group = run_columns.field(args.group, known["plain"])
        answer = _asked(lambda: client.get(RUNS, limit=1, group=group, **chosen), client)
        return _print_groups(answer, args, columns or metrics[:_VALUES], most, still_reading(client))
    answer = _asked(lambda: client.get(RUNS, limit=min(most, MOST), **chosen), client)
    rows, matched = answer["runs"], answer["matched"]
    unread = still_reading(client)
    if unread and rows:
        print(f"stepscope: {unread}: runs may be missing", file=sys.stderr)
    if args.json:
        cells = [
            {"columns": {each: run_columns.value(row, each) for each in columns}} if columns else {} for row in rows
        ]
        print(dumps([as_json(stored_row(home, row)) | more for row, more in zip(rows, cells, strict=True)]))
        return 0
    dear: dict[str, str] = answer.get("left_out", {})
    unknown = run_columns.nowhere([each for each in columns if each not in dear], rows, known)
    for line in (*(f"{field} is left out: {why}" for field, why in dear.items()), *unknown):
        print(text.clean(f"stepscope: {line}"), file=sys.stderr)
    listed = [stored_row(home, row) for row in rows]
    lines = _with_columns(listed, rows, names, columns) if columns else _lines(listed, text.width())
    print("\n".join(lines) if rows else _no_match(answer, f" in {home}", unread))
    if len(rows) < matched:
        print(f"\n{len(rows)} of {matched} runs shown; -n {matched} shows all")
    return 0


def _asked(ask: Callable[[], dict[str, Any]], client: HubClient, patience: float = PATIENCE_SECONDS) -> dict[str, Any]:
    """Ask, and again while nothing matches and the hub is still reading journals, for a limited time."""
    until = time.monotonic() + patience
    while True:
        answer = ask()
        if answer["matched"] or time.monotonic() >= until or not still_reading(client):
            return answer
        time.sleep(PAUSE_SECONDS)


def _no_match(answer: Mapping[str, Any], where: str, unread: str) -> str:
    return f"no run matches, of {answer['total']}{where}" + (f"; {unread}" if unread else "")


def _print_groups(
    answer: dict[str, Any], args: argparse.Namespace, columns: Sequence[str], most: int, unread: str
) -> int:
    """Print the groups of the runs that match; without columns those of the leading metrics."""
    for field, why in answer["left_out"].items():
        print(text.clean(f"stepscope: {field} is left out: {why}"), file=sys.stderr)
    if args.json:
        print(dumps(answer["groups"][:most]))
    elif answer["groups"]:
        fields = columns if args.columns else [f"metrics.{name}" for name in columns]
        print("\n".join(_group_lines(answer, args.group, fields, most)))
    else:
        print(_no_match(answer, "", unread))
    return 0


def _group_lines(answer: Mapping[str, Any], by: str, columns: Sequence[str], most: int) -> list[str]:
    """The groups of an answer of `/api/runs` as a table, with `mean ± standard deviation` in each column."""
    shown = answer["groups"][:most]
    head = [by, ">RUNS", *(f">{text.clean(each.removeprefix('metrics.'))}" for each in columns)]
    rows = [
        [
            _group_name(group["shared"]),
            formatting.count(group["runs"]),
            *(_group_cell(group, field) for field in columns),
        ]
        for group in shown
    ]
    made = text.table(head, rows, limits={by: _WIDEST_GROUP})
    left = answer["group_count"] - len(shown)
    return [*made, *(["", f"{len(shown)} of {answer['group_count']} groups shown"] if left else [])]


def _group_name(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or formatting.MISSING
    return formatting.MISSING if value is None else text.number(value) if isinstance(value, float) else str(value)


def _group_cell(group: Mapping[str, Any], field: str) -> str:
    """The mean and spread of a column; how many of the runs they are of, where some have no finite value."""
    found = group["columns"].get(field)
    if found is None:
        return formatting.MISSING
    part = "" if found["runs"] == group["runs"] else f" of {found['runs']}"
    spread = "" if found["std"] is None else f" ± {_group_value(found, found['std'], field)}"
    return f"{_group_value(found, found['mean'], field)}{spread}{part}"


def _group_value(found: Mapping[str, Any], value: float, field: str) -> str:
    return formatting.duration(value) if field == "duration" else text.value_of(found["key"], value, found["unit"])


def _order(args: argparse.Namespace, plain: Sequence[str]) -> str:
    """The order as the API takes it; `-` before the field, or --reverse, for the highest first."""
    if args.sort is None:
        return "started" if args.reverse else "-started"
    field = run_columns.field(args.sort.removeprefix("-"), plain)
    return f"-{field}" if args.reverse != args.sort.startswith("-") else field


def _with_columns(
    listed: list[ListedRun], rows: list[dict[str, Any]], names: Sequence[str], columns: Sequence[str]
) -> list[str]:
    cells = [[text.cut(run_columns.shown(row, each), _WIDEST) for each in columns] for row in rows]
    head = (*_HEAD[:3], *run_columns.headings(names, cells))
    made = [[*_row(each)[:3], *more] for each, more in zip(listed, cells, strict=True)]
    return text.table(head, made, limits=_limits(head, made, text.width()))


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
    head, rows = _that_fit(_HEAD, [_row(each) for each in shown], width)
    lines = text.table(head, rows, limits=_limits(head, rows, width))
    out = lines[:1]
    for each, line in zip(shown, lines[1:], strict=True):
        details = _details(each)
        out += [line, text.cut(f"  {details}", width)] if details else [line]
    return out


def _that_fit(head: Sequence[str], rows: list[list[str]], width: int) -> tuple[Sequence[str], list[list[str]]]:
    """Leave out columns until the others fit; the id stays whole, since it is what one types next."""
    for name in _LEAVES_FIRST:
        if _name_room(head, rows, width) >= _name_wish(rows):
            break
        left = head.index(name)
        head = [each for column, each in enumerate(head) if column != left]
        rows = [[cell for column, cell in enumerate(row) if column != left] for row in rows]
    return head, rows


def _limits(head: Sequence[str], rows: list[list[str]], width: int) -> dict[str, int]:
    """The name gets what the other columns leave."""
    return {"RUN": _WIDEST_ID, "PROJECT/NAME": max(_name_room(head, rows, width), _name_wish(rows))}


def _name_wish(rows: list[list[str]]) -> int:
    """The least room for names, and for their heading."""
    return min(max(map(columns_of, (_HEAD[1], *(row[1] for row in rows)))), _NARROWEST_NAME)


def _name_room(head: Sequence[str], rows: list[list[str]], width: int) -> int:
    cells = [[name.lstrip(">") for name in head], *rows]
    run, _, *others = (max(columns_of(row[column]) for row in cells) for column in range(len(head)))
    return width - min(run, _WIDEST_ID) - sum(others) - 2 * (len(head) - 1)


def _row(seen: ListedRun) -> list[str]:
    return [
        seen.run,
        f"{seen.project}/{seen.name}" if seen.name else seen.project,
        seen.status if seen.imported is None else f"{seen.status} {seen.imported:.0%}",
        formatting.ordinal(seen.last_step),
        str(seen.attempts),
        str(seen.ranks),
        short_moment(seen.started),
        formatting.duration(seen.duration),
        formatting.size(seen.size or None),
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
