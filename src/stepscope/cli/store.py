"""`stepscope store info|check|compact|migrate`: inspect, check, compact and move the hub's store."""

import argparse
import hashlib
import socket
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, add_to_verbs, home_of, print_answer
from stepscope.cli.progress import progress
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.wire.plain import plain

if TYPE_CHECKING:
    from stepscope.hub.store.maintenance import Info
    from stepscope.hub.store.store import Store

SOUND, DAMAGED = 0, 1
_NEEDED = "this needs the hub's packages: pip install 'stepscope[hub]'"
SHOWN = 10
_HEAD = ("TABLE", ">ROWS", ">BYTES", ">PARTS")


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(
        commands, "store", "inspect, check, compact and move the hub's store while no hub runs", show_info
    )
    verbs = made.add_subparsers(metavar="info|check|compact|migrate")
    verbs.add_parser("info", help="tables, rows, bytes, times, schema").set_defaults(command=show_info)
    verbs.add_parser("check", help="read every part; exit code 1 on damage").set_defaults(command=check)
    verbs.add_parser("compact", help="merge all parts, and print the bytes saved").set_defaults(command=compact)
    move = verbs.add_parser("migrate", help="copy a store: a home folder or clickhouse://...; can be resumed")
    move.add_argument("source", metavar="FROM", help="a home folder, or the address of a ClickHouse server or cluster")
    move.add_argument("target", metavar="TO", help="the same; one of the two must be an address")
    move.set_defaults(command=migrate)
    add_to_verbs(verbs)


def show_info(args: argparse.Namespace) -> int:
    """Print what the store holds."""
    with _opened(args) as store:
        from stepscope.hub.store import maintenance

        found, (oldest, newest) = maintenance.info(store.engine), maintenance.reach(store.engine)
    answer = {**plain(found), "oldest": text.iso(oldest), "newest": text.iso(newest)}
    print_answer(args, answer, _lines(found, f"records from {text.moment(oldest)} to {text.moment(newest)}"))
    return SOUND


def _lines(found: "Info", times: str) -> list[str]:
    rows = [
        [each.name, formatting.count(each.rows), formatting.size(each.bytes), str(each.parts)] for each in found.tables
    ]
    return [
        f"schema {found.schema}, engine {found.engine}, {formatting.size(found.bytes)}",
        f"{formatting.count(found.points)} points, {formatting.number(found.bytes_per_point, 3)} bytes each",
        times,
        "",
        *text.table(_HEAD, rows),
    ]


def check(args: argparse.Namespace) -> int:
    """Read every part of every table; 0 when all is sound, 1 when something is not."""
    with _opened(args) as store:
        from stepscope.hub.store import maintenance

        version, problems = store.version, maintenance.check(store.engine)
    folder = home_of(args) / "hub" / "store"
    advice = f"move {folder} away and start the hub, which reads every journal that is still there again"
    if maintenance.mended_by_compact(problems):
        advice = "`stepscope store compact` mends this"
    words, advised = f"the store is sound (schema {version})", {}
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        words, advised = f"the store is damaged ({'; '.join(problems[:SHOWN])}{more}): {advice}", {"advice": advice}
    answer = {"sound": not problems, "schema": version, "problems": problems, **advised}
    print_answer(args, answer, text.clean(words))
    return DAMAGED if problems else SOUND


def compact(args: argparse.Namespace) -> int:
    """Fold long series and list the steps of samples that are not yet, and merge the parts of every table."""
    with _opened(args) as store:
        from stepscope.hub.store import maintenance

        before = maintenance.info(store.engine)
        store.fold_all()
        maintenance.list_samples(store.engine)
        maintenance.compact(store.engine)
        after = maintenance.info(store.engine)
    parts = [sum(each.parts for each in found.tables) for found in (before, after)]
    words = [
        f"{formatting.size(before.bytes)} in {parts[0]} parts became {formatting.size(after.bytes)} in {parts[1]}",
        f"{formatting.count(after.points)} points, {formatting.number(after.bytes_per_point, 3)} bytes each",
    ]
    print_answer(args, {"before": before, "after": after}, words)
    return SOUND


def migrate(args: argparse.Namespace) -> int:
    """Copy a store, and compare the copy."""
    try:
        from stepscope.hub.home_store import held
        from stepscope.hub.store import migration
        from stepscope.hub.store.cluster.address import is_address, parse
    except ImportError as error:
        raise ConfigError(f"{_NEEDED} ({error.name})") from error
    ends = [
        str(parse(end)) if is_address(end) else str(Path(end).expanduser().absolute())
        for end in (args.source, args.target)
    ]
    if not any(map(is_address, ends)) or ends[0] == ends[1]:
        raise ConfigError(
            "one of the two must be clickhouse://...: the store in a home folder is moved with the folder"
        )
    hub = hashlib.sha256(f"migrate {ends} {socket.gethostname()}".encode()).hexdigest()[:16]  # the same when run again
    with (
        held(args.source, hub, must_exist=True) as source,
        held(args.target, hub, must_exist=False) as target,
        progress() as show,
    ):
        migration.refuse_unfinished(source.engine)
        done = migration.migrate(source, target, ends[0], lambda table, rows, total: show(table, rows, total, "rows"))
    tables = [{"name": each.name, "rows": each.rows, "copied": each.copied} for each in done.tables]
    counts = {"runs": done.runs, "rows": done.rows, "copied": done.copied}
    rows = [[each.name, formatting.count(each.rows), formatting.count(each.copied)] for each in done.tables]
    moved = f"{formatting.count(done.runs)} runs are in {ends[1]}; rows and checksums of each are those of {ends[0]}"
    words = [*text.table(("TABLE", ">ROWS", ">COPIED"), rows), moved]
    print_answer(args, {"source": ends[0], "target": ends[1], **counts, "tables": tables}, words)
    return SOUND


def _opened(args: argparse.Namespace) -> AbstractContextManager["Store"]:
    try:
        from stepscope.hub.home_store import opened
    except ImportError as error:
        raise ConfigError(f"{_NEEDED} ({error.name})") from error
    return opened(home_of(args))
