"""`stepscope import`: bring runs that other tools recorded, from their files."""

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.cli.progress import progress
from stepscope.hub.client import HubError, open_http_client
from stepscope.imports.check import compare
from stepscope.imports.importer import import_run
from stepscope.imports.source import FoundRun, Skip, Source
from stepscope.imports.tables import Csv, JsonLines
from stepscope.journal import layout
from stepscope.model import formatting
from stepscope.model.dialects import load, with_part
from stepscope.model.errors import ConfigError, StepscopeError
from stepscope.wire.plain import dumps

TABLES: tuple[Source, ...] = (Csv(), JsonLines())
"""Tried only where a path holds no files of a known tool."""
TABLES_BESIDE = "CSV and JSON lines beside the runs of other tools: name them to import them"
"""They may be artifacts of those runs."""
RECEIVED = "runs that the hub has from their own client, so that every value would be there twice"
FOLLOW_SECONDS = 1.0


def tools() -> list[Source]:
    """List the tools whose files can be imported: those of all dialects."""
    return [source for each in with_part("importer") for source in load(each.importer)]


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "import", "import runs from files of other tools, CSV and JSON lines", command)
    made.add_argument("path", metavar="PATH", nargs="+", type=Path, help="files or folders; the format is detected")
    made.add_argument("--project", help="the project of the imported runs, instead of the one found")
    made.add_argument("--follow", action="store_true", help="keep importing while the files grow, until Ctrl-C")
    made.add_argument("--check", action="store_true", help="compare imported records with the files, one by one")


def command(args: argparse.Namespace, pause: Callable[[float], None] = time.sleep) -> int:
    """Import, or check; 1 when a check found a difference."""
    home = home_of(args)
    if args.check:
        return _check(args, home)
    done, left_out = _once(args, home)
    if args.follow and not done:
        print(f"nothing to import yet: waiting for {', '.join(map(str, args.path))}", file=sys.stderr)
    else:
        _report(args, done, left_out)
    try:
        while args.follow:
            pause(FOLLOW_SECONDS)
            done, left_out = _once(args, home)
            if any(each["records"] for each in done):
                _report(args, done, left_out)
    except KeyboardInterrupt:
        pass
    return 0


def _found(args: argparse.Namespace, skip: Skip) -> Iterator[tuple[Source, FoundRun]]:
    for path in args.path:
        if not path.exists():
            raise ConfigError(f"there is no file or folder {path}")
        why: Counter[str] = Counter()
        found = _runs(tools(), path, _into(why))
        if found and (beside := _runs(TABLES, path, lambda reason, count: None)):
            why[TABLES_BESIDE] += len(beside)
        found = found or _runs(TABLES, path, _into(why))
        if not found and not args.follow:
            seen = _listed(why) or ", ".join(each.name for each in (*tools(), *TABLES))
            raise ConfigError(f"{path} has nothing that can be imported: {seen}")
        for reason, count in why.items():
            skip(reason, count)
        yield from found


def _into(counts: Counter[str]) -> Skip:
    def skip(reason: str, count: int) -> None:
        counts[reason] += count

    return skip


def _runs(sources: Sequence[Source], path: Path, skip: Skip) -> list[tuple[Source, FoundRun]]:
    return [(source, run) for source in sources for run in source.find(path, skip)]


def _once(args: argparse.Namespace, home: Path) -> tuple[list[dict[str, Any]], Counter[str]]:
    done: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    skip = _into(left_out)
    with progress() as show:
        for source, run in _found(args, skip):
            if _is_received(home, run.id):
                skip(RECEIVED, 1)
                continue
            values = records = 0
            for step in import_run(home, run, source.name, skip, args.project):
                values, records = values + step.points, records + step.records
                counted = formatting.amount(values, "value")
                show(text.cut(text.clean(run.name), 24), step.done, max(step.size, step.done), counted)
            done.append({"run": run.id, "name": run.name, "source": source.name, "values": values, "records": records})
    return done, left_out


def _is_received(home: Path, run: str) -> bool:
    """Return whether the hub of the home has a run of which no journal is here: its client has sent it."""
    if (layout.runs_folder(home) / run).exists():
        return False
    with contextlib.suppress(HubError, StepscopeError, OSError):
        client = open_http_client(home, timeout=5.0)
        return client is not None and client.get("/api/runs/{run}", run=run) is not None
    return False


def _report(args: argparse.Namespace, done: list[dict[str, Any]], left_out: Counter[str]) -> None:
    if args.json:
        print(dumps({"runs": done, "left_out": dict(left_out)}))
        return
    for each in done:
        new = formatting.amount(each["values"], "value") if each["records"] else "nothing new"
        print(text.clean(f"{each['source']}: {each['name']} -> {each['run']}  {new}"))
    if left_out:
        print(text.clean(f"left out: {_listed(left_out)}"))
    sys.stdout.flush()


def _check(args: argparse.Namespace, home: Path) -> int:
    differing = 0
    rows = []
    for source, run in _found(args, lambda reason, count: None):
        result = compare(home, run, source.name)
        differing += not result.same
        rows.append({"run": run.id, "same": result.same, "records": result.records, "difference": result.difference})
        if not args.json:
            counted = "1 value is" if result.records == 1 else f"{formatting.count(result.records)} values are"
            outcome = f"{counted} the same" if result.same else result.difference
            print(text.clean(f"{run.name} -> {run.id}: {outcome}"))
    if args.json:
        print(dumps(rows))
    return 1 if differing else 0


def _listed(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason} ({formatting.count(count)})" for reason, count in left_out.items())
