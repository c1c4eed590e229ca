"""`stepscope store info|check|compact`: inspect, check and compact the hub's store."""

import argparse
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, add_to_verbs, home_of
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.wire.plain import dumps, plain

if TYPE_CHECKING:
    from stepscope.hub.store.maintenance import Info
    from stepscope.hub.store.store import Store

SOUND, DAMAGED = 0, 1
SHOWN = 10
_HEAD = ("TABLE", ">ROWS", ">BYTES", ">PARTS")


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "store", "inspect, check and compact the hub's store while no hub runs", show_info)
    verbs = made.add_subparsers(metavar="info|check|compact")
    verbs.add_parser("info", help="tables, rows, bytes, times, schema").set_defaults(command=show_info)
    verbs.add_parser("check", help="read every part; 1 when something is wrong").set_defaults(command=check)
    verbs.add_parser("compact", help="merge all parts, and say the bytes saved").set_defaults(command=compact)
    add_to_verbs(verbs)


def show_info(args: argparse.Namespace) -> int:
    """Print what the store holds."""
    with _opened(args) as store:
        from stepscope.hub.store import maintenance

        found, (oldest, newest) = maintenance.info(store.engine), maintenance.reach(store.engine)
    if args.json:
        print(dumps({**plain(found), "oldest": text.iso(oldest), "newest": text.iso(newest)}))
    else:
        print("\n".join(_lines(found, f"records from {text.moment(oldest)} to {text.moment(newest)}")))
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
    if args.json:
        advised = {"advice": advice} if problems else {}
        print(dumps({"sound": not problems, "schema": version, "problems": problems, **advised}))
    elif problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        print(text.clean(f"the store is damaged ({'; '.join(problems[:SHOWN])}{more}): {advice}"))
    else:
        print(f"the store is sound (schema {version})")
    return DAMAGED if problems else SOUND


def compact(args: argparse.Namespace) -> int:
    """Merge the parts of every table."""
    with _opened(args) as store:
        from stepscope.hub.store import maintenance

        before = maintenance.info(store.engine)
        maintenance.compact(store.engine)
        after = maintenance.info(store.engine)
    parts = [sum(each.parts for each in found.tables) for found in (before, after)]
    if args.json:
        print(dumps({"before": before, "after": after}))
        return SOUND
    print(f"{formatting.size(before.bytes)} in {parts[0]} parts became {formatting.size(after.bytes)} in {parts[1]}")
    print(f"{formatting.count(after.points)} points, {formatting.number(after.bytes_per_point, 3)} bytes each")
    return SOUND


def _opened(args: argparse.Namespace) -> AbstractContextManager["Store"]:
    try:
        from stepscope.hub.home_store import opened
    except ImportError as error:
        raise ConfigError(f"this needs the hub's packages: pip install 'stepscope[hub]' ({error.name})") from error
    return opened(home_of(args))
