"""`stepscope export`: copy what a run recorded to a Parquet, CSV, JSONL or Arrow file, or all runs to a folder."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stepscope.cli.export_folder import export_runs
from stepscope.cli.hub_runs import open_run
from stepscope.cli.options import RUN_HELP, Commands, add_command, home_of, integer, print_answer
from stepscope.cli.progress import progress
from stepscope.hub.client import open_client
from stepscope.journal import atomic_files
from stepscope.model import formatting
from stepscope.model.errors import ConfigError

FORMATS = ("parquet", "csv", "jsonl", "arrow")
WHAT = ("metrics", "histograms", "exemplars", "spans", "logs", "alerts", "samples")


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "export", "copy a run to a file, or all runs to a folder", command)
    made.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)
    target = made.add_mutually_exclusive_group(required=True)
    target.add_argument("-o", "--output", metavar="FILE", help="the output file; `-` is standard output")
    whole = "all runs as Parquet by project and week; repeated runs add what is new"
    target.add_argument("--parquet", type=Path, metavar="FOLDER", help=whole)
    made.add_argument("--format", choices=FORMATS, help="the format; default: by the suffix of FILE")
    made.add_argument("--what", choices=WHAT, default="metrics", help="the kind of records (metrics)")
    made.add_argument("--key", action="append", default=[], metavar="KEY", help="points of this metric only")
    made.add_argument("--rank", type=integer(), metavar="R", help="points of this rank only")


def command(args: argparse.Namespace) -> int:
    """Copy the run, or all of them."""
    if args.parquet is not None:
        return _export_all(args)
    if args.run is None:
        raise ConfigError("name the run to copy, or give --parquet FOLDER for all runs")
    format = args.format or format_of(args.output)
    given = {"format": format, "what": args.what, "key": args.key, "rank": args.rank}
    with open_run(home_of(args), args.run) as (client, run):
        if args.output == "-":
            client.copy(sys.stdout.buffer, "/api/runs/{run}/export", run=run, **given)
            return 0
        path = Path(args.output)
        with replacing(path) as out:
            size = client.copy(out, "/api/runs/{run}/export", run=run, **given)
    done = {"run": run, "what": args.what, "format": format, "file": str(path), "bytes": size}
    print_answer(args, done, f"{args.what} of {run}: {path} ({formatting.size(size)})")
    return 0


def _export_all(args: argparse.Namespace) -> int:
    if args.run is not None or args.format or args.key or args.rank is not None:
        raise ConfigError("--parquet copies all runs whole: leave out RUN, --format, --key and --rank")
    with open_client(home_of(args)) as client, progress() as show:
        if client.problem:
            print(f"stepscope: the newest records are not in the files: {client.problem}", file=sys.stderr)
        done = export_runs(client, args.parquet, lambda count, total, run: show("runs", count, total, run))
    counts = {"runs": done.runs, "written": done.written, "files": done.files, "bytes": done.bytes}
    changed = f"{formatting.count(done.written)} of {formatting.count(done.runs)} runs are new or have changed"
    words = f"{changed}: {formatting.amount(done.files, 'file')}, {formatting.size(done.bytes)} in {args.parquet}"
    print_answer(args, {"folder": str(args.parquet), **counts}, words)
    return 0


def format_of(name: str) -> str:
    """The format for a file name extension."""
    ending = {"ndjson": "jsonl", "json": "jsonl"}.get(name.rpartition(".")[2].lower(), name.rpartition(".")[2].lower())
    if ending not in FORMATS:
        raise ConfigError(f"{name!r} has no known format: end its name in .{', .'.join(FORMATS)} or give --format")
    return ending


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears when it is complete; otherwise an existing one stays.

    A link is followed; a pipe or device is written directly.
    """
    target = path.resolve()
    special = target.exists() and not target.is_file()
    try:
        with open(target, "wb") if special else atomic_files.replacing(target, mode=0o666) as out:
            yield out
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
