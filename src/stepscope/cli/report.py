"""`stepscope report`: one HTML file of a run, to mail: charts, what went wrong, configuration, logs."""

import argparse
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.cli.export import replacing
from stepscope.cli.html.report_page import page
from stepscope.cli.hub_runs import open_run
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, integer
from stepscope.hub.client import HubClient
from stepscope.journal.key_summary import importance
from stepscope.model import formatting
from stepscope.wire.plain import dumps

MAX_KEYS = 120
"""How many metrics are drawn; the most important first."""
MAX_STEPS = 10
AT_ONCE = 16
LOGS = 200


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "report", "write a run as one HTML file", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    made.add_argument("-o", "--output", required=True, metavar="FILE", help="the output file, such as run.html")
    made.add_argument("--points", type=integer(2), default=400, metavar="N", help="the most points per chart (400)")


def command(args: argparse.Namespace) -> int:
    """Write the report."""
    with open_run(home_of(args), args.run) as (client, run):
        made = write(client, run, args.points).encode("utf-8", "replace")
    path = Path(args.output)
    with replacing(path) as out:
        out.write(made)
    done = {"run": run, "file": str(path), "bytes": len(made)}
    print(dumps(done) if args.json else f"report of {run}: {path} ({formatting.size(len(made))})")
    return 0


def write(client: HubClient, run: str, points: int) -> str:
    """Query everything a report shows, and render the page."""
    about = {**client.get("/api/runs/{run}", run=run), **client.get("/api/runs/{run}/findings", run=run)}
    rows = client.get("/api/runs/{run}/keys", run=run)["keys"]
    stepped = [row["key"] for row in rows if row["first_step"] is not None and not row["key"].startswith("stepscope/")]
    chosen = sorted(stepped, key=_order)[:MAX_KEYS]
    lines: list[dict[str, Any]] = []
    for start in range(0, len(chosen), AT_ONCE):
        keys = chosen[start : start + AT_ONCE]
        lines += client.get("/api/runs/{run}/series", run=run, key=keys, points=points)["series"]
    steps = dict.fromkeys(each["step"] for each in about["findings"] if each["step"] is not None and not each["muted"])
    views = [client.get("/api/runs/{run}/steps/{step}", run=run, step=step) for step in sorted(list(steps)[:MAX_STEPS])]
    logs = client.get("/api/logs", run=run, limit=LOGS)["logs"]
    alerts = client.get("/api/alerts", run=run, limit=LOGS)["alerts"]
    return page(about, lines, views, logs, alerts, __version__)


def _order(key: str) -> tuple[int, bool, str]:
    return importance(key), not key.startswith("trainer/"), key
