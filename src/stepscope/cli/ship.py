"""`stepscope ship`: deliver what the journals of a home still hold, by hand or as the shipper of a trainer."""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, home_of, print_answer
from stepscope.journal.atomic_files import Locked
from stepscope.journal.layout import host_name
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.sdk import settings
from stepscope.sdk.shipping.delivery_state import Pending, pending, running_shippers
from stepscope.sdk.shipping.shipper_process import Shipping, lock_home, ship
from stepscope.sdk.shipping.sink_requests import GIVE_UP_SECONDS
from stepscope.sdk.shipping.sink_worker import Report
from stepscope.sinks import registry

PRIORITY = 10
STOP_SECONDS = 15.0
_TELL_SECONDS = 1.0


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "ship", "deliver what is still undelivered, and report the outcome", command)
    made.add_argument("--sink", action="append", metavar="SINK", help="deliver to this sink: its name, or JSON")
    made.add_argument("--timeout", type=float, metavar="SECONDS", help="stop after this many seconds")
    made.add_argument("--status", action="store_true", help="show what is undelivered and which shippers run")
    made.add_argument("--background", action="store_true", help=argparse.SUPPRESS)


def command(args: argparse.Namespace) -> int:
    """Deliver; 0 when nothing is left, 1 when something is."""
    home = home_of(args)
    if args.status:
        return _status(args, home)
    host = host_name()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = lock_home(home, host)
    except Locked as error:
        if args.background:
            return 0
        raise ConfigError(f"a shipper (pid {error}) already delivers everything in {home}") from None
    except OSError as error:
        raise ConfigError(f"{home} cannot be used: {error.strerror}") from None
    try:
        lock.sign(str(os.getpid()))
        return _in_background(Shipping(home, host)) if args.background else _by_hand(args)
    finally:
        lock.release()


def _in_background(shipping: Shipping) -> int:
    with contextlib.suppress(OSError):
        os.nice(PRIORITY)
    signal.signal(signal.SIGTERM, _leave)
    try:
        while ship(shipping):
            forgotten = shipping.forget_delivered()
            # A trainer that registered at this moment found this shipper running, and relies on it.
            shipping.refresh()
            if forgotten and shipping.is_done():
                return 0
        return 1
    finally:
        shipping.stop(STOP_SECONDS)


def _leave(number: int, frame: Any) -> None:
    sys.exit(0)


def _by_hand(args: argparse.Namespace) -> int:
    shipping = Shipping(home_of(args), None, chosen_sinks(args.sink))
    shipping.refresh()
    if not shipping.workers:
        nothing = "nothing to do: no run has requested a sink. Name one with --sink, or set STEPSCOPE_SINKS"
        print_answer(args, {"delivered": True, "sinks": []}, nothing)
        return 0
    try:
        seconds = GIVE_UP_SECONDS if args.timeout is None else args.timeout
        done = ship(shipping, wait=False, seconds=seconds, on_reports=_printer(quiet=args.json))
    finally:
        shipping.stop(STOP_SECONDS)
    reports = shipping.reports()
    print_answer(args, {"delivered": done, "sinks": reports}, map(line_of, reports))
    return 0 if done else 1


def _status(args: argparse.Namespace, home: Path) -> int:
    """Show what is not delivered yet and which shippers run; 0 when nothing is left, 1 when something is."""
    shippers, left = running_shippers(home), pending(home)
    lines = [f"a shipper (pid {pid}) runs on {host}" for host, pid in shippers.items()]
    lines += [describe(each) for each in left] or ["nothing is undelivered"]
    print_answer(args, {"delivered": not left, "shippers": shippers, "pending": left}, map(text.clean, lines))
    return 1 if left else 0


def describe(left: Pending) -> str:
    """Describe in one line what a sink lacks, and what becomes of it."""
    head = f"run {left.run}: {formatting.size(left.unread)} not delivered to {left.sink} ({left.place})"
    if left.shipper is None:
        doing = "no shipper is running; `stepscope ship` delivers it"
    elif left.gives_up_at is None:
        doing = f"process {left.shipper} is delivering it"
    else:
        doing = f"process {left.shipper} keeps trying until {text.moment(int(left.gives_up_at * 1e9))}"
    return "; ".join(filter(None, (head, left.problem, doing)))


def chosen_sinks(given: list[str] | None) -> tuple[registry.Chosen, ...]:
    """The remote sinks that were named, else those of the settings."""
    if given:
        return tuple(made for each in given for made in registry.parse(each))
    return tuple(each for each in settings.load({}).sinks if each.config.remote)


def line_of(report: Report) -> str:
    """Format a report in one line."""
    counts = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(report.counts.items())) or "nothing yet"
    left = f"; {formatting.size(report.unread)} left" if report.unread > 0 else ""
    return f"{report.sink} ({report.place}): {counts}{left}" + (f"; {report.problem}" if report.problem else "")


def _printer(*, quiet: bool) -> Callable[[list[Report]], None]:
    """Show progress on a terminal only."""
    printed = time.monotonic()

    def show(reports: list[Report]) -> None:
        nonlocal printed
        if not quiet and sys.stderr.isatty() and time.monotonic() - printed > _TELL_SECONDS:
            printed = time.monotonic()
            for report in reports:
                print(line_of(report), file=sys.stderr)

    return show
