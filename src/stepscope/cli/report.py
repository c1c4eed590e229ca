"""`stepscope report`: one HTML file of one or more runs, to mail: charts, what went wrong, settings, images, logs."""

import argparse
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.cli.export import replacing
from stepscope.cli.html.compared_page import Compared
from stepscope.cli.html.compared_page import page as compared_page
from stepscope.cli.html.pictures import pictures
from stepscope.cli.html.report_page import page
from stepscope.cli.hub_runs import open_run
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, integer, print_answer
from stepscope.hub.client import HubClient, open_client, resolve_run
from stepscope.journal.key_summary import importance
from stepscope.model import formatting
from stepscope.model.errors import ConfigError

MAX_KEYS = 120
"""How many metrics are drawn; the most important first."""
MAX_KEYS_COMPARED = 60
"""How many metrics of each run are drawn where runs are compared."""
MAX_RUNS = 50
MAX_STEPS = 10
AT_ONCE, ADDRESS_BYTES = 16, 32_000
"""Metrics in one question, and how long they may make its address."""
LOGS = 200


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "report", "write a run, or several, as one HTML file", command)
    made.add_argument("run", nargs="*", default=["latest"], metavar="RUN", help=f"{LATEST_HELP}; several are compared")
    made.add_argument("-o", "--output", required=True, metavar="FILE", help="the output file, such as run.html")
    made.add_argument("--points", type=integer(2), default=400, metavar="N", help="the most points per chart (400)")


def command(args: argparse.Namespace) -> int:
    """Write the report."""
    if len(args.run) > MAX_RUNS:
        raise ConfigError(f"a report compares at most {MAX_RUNS} runs")
    home = home_of(args)
    if len(args.run) < 2:
        with open_run(home, args.run[0]) as (client, run):
            runs, made = [run], write(client, run, args.points)
    else:
        with open_client(home) as client:
            runs = list(dict.fromkeys(resolve_run(client, home, each) for each in args.run))
            made = compare(client, runs, args.points)
    data, path = made.encode("utf-8", "replace"), Path(args.output)
    with replacing(path) as out:
        out.write(data)
    done = {"run": runs[0], "runs": runs, "file": str(path), "bytes": len(data)}
    what = runs[0] if len(runs) == 1 else formatting.amount(len(runs), "run")
    print_answer(args, done, f"report of {what}: {path} ({formatting.size(len(data))})")
    return 0


def write(client: HubClient, run: str, points: int) -> str:
    """Query everything a report shows, and render the page."""
    about = _about(client, run)
    lines = _lines(client, run, points, MAX_KEYS)
    steps = dict.fromkeys(each["step"] for each in about["findings"] if each["step"] is not None and not each["muted"])
    views = [client.get("/api/runs/{run}/steps/{step}", run=run, step=step) for step in sorted(list(steps)[:MAX_STEPS])]
    logs = client.get("/api/logs", run=run, limit=LOGS)["logs"]
    alerts = client.get("/api/alerts", run=run, limit=LOGS)["alerts"]
    return page(about, lines, views, logs, alerts, pictures(client, run), __version__)


def compare(client: HubClient, runs: Sequence[str], points: int) -> str:
    """Query what a report over several runs shows, and render the page."""
    compared = []
    for run in runs:
        lines = {line["key"]: line for line in _lines(client, run, points, MAX_KEYS_COMPARED)}
        compared.append(Compared(_about(client, run), lines, pictures(client, run)))
    return compared_page(compared, __version__)


def _about(client: HubClient, run: str) -> dict[str, Any]:
    return {**client.get("/api/runs/{run}", run=run), **client.get("/api/runs/{run}/findings", run=run)}


def _lines(client: HubClient, run: str, points: int, most: int) -> list[dict[str, Any]]:
    """The lines of the most important metrics of a run."""
    rows = client.get("/api/runs/{run}/keys", run=run)["keys"]
    stepped = [row["key"] for row in rows if row["first_step"] is not None and not row["key"].startswith("stepscope/")]
    chosen = sorted(stepped, key=_order)[:most]
    lines: list[dict[str, Any]] = []
    for keys in _groups(chosen):
        lines += client.get("/api/runs/{run}/series", run=run, key=keys, points=points)["series"]
    return lines


def _groups(keys: Sequence[str]) -> Iterator[list[str]]:
    """Yield keys in groups that fit into an address."""
    group: list[str] = []
    room = ADDRESS_BYTES
    for key in keys:
        size = len(urllib.parse.quote(key))
        if group and (len(group) == AT_ONCE or size > room):
            yield group
            group, room = [], ADDRESS_BYTES
        group.append(key)
        room -= size
    if group:
        yield group


def _order(key: str) -> tuple[int, bool, str]:
    return importance(key), not key.startswith("trainer/"), key
