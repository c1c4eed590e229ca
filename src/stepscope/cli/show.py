"""`stepscope show`: describe one run."""

import argparse
from typing import Any

from stepscope.cli import hub_runs, text
from stepscope.cli.findings import findings_of
from stepscope.cli.options import RUN_HELP, Commands, add_command, home_of
from stepscope.cli.run_text import Shown, look, report
from stepscope.journal.key_summary import KeySummary, SpanSummary
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.journal.run_summary import WriterSummary
from stepscope.wire.plain import dumps, plain


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "show", "describe one run", command)
    made.add_argument("run", metavar="RUN", help=RUN_HELP)


def command(args: argparse.Namespace) -> int:
    """Print the run."""
    home = home_of(args)
    try:
        run = find_run(home, args.run)
    except UnknownRun:
        found = hub_runs.describe(home, args.run)
        if found is None:
            raise
        print(dumps(found) if args.json else "\n".join(hub_runs.report(found)))
        return 0
    shown = look(home, run)._replace(findings=findings_of(home, run))
    print(dumps(as_json(shown)) if args.json else report(shown, text.width()))
    return 0


def as_json(shown: Shown) -> dict[str, Any]:
    """A run for programs."""
    summary, description = shown.summary, shown.summary.described
    return {
        "run": summary.run,
        "project": summary.project,
        "name": description.name,
        "notes": description.notes,
        "tags": description.tags,
        "group": summary.group or None,
        "job_type": summary.job_type or None,
        "archived": description.archived,
        "status": shown.status,
        "started": text.iso(summary.started),
        "ended": text.iso(summary.ended),
        "duration_seconds": shown.duration,
        "last_step": summary.last_step,
        "attempts": summary.attempts,
        "ranks": summary.ranks,
        "size": shown.size,
        "config": summary.config,
        "environment": summary.environment,
        "writers": [_writer(shown, each) for each in summary.writers.values()],
        "keys": {key: _key(each) for key, each in summary.keys.items()},
        "spans": {name: _span(each) for name, each in summary.spans.items()},
        "open_spans": [{**plain(span), "rank": who.rank} for who, span in summary.open_spans.values()],
        "findings": list(shown.findings),
        "alerts": {"counts": summary.alerts, "recent": summary.recent_alerts},
        "exceptions": summary.exceptions,
        "events": {"counts": summary.events, "recent": summary.recent_events},
        "logs": summary.logs,
        "counters": summary.counters,
    }


def _writer(shown: Shown, each: WriterSummary) -> dict[str, Any]:
    who = each.writer
    return {
        "id": who.id,
        "attempt": who.attempt,
        "rank": who.rank,
        "world_size": who.world_size,
        "main": who.main,
        "host": who.host,
        "pid": who.pid,
        "resource": who.resource,
        "status": shown.status_of(each),
        "started": text.iso(each.started),
        "ended": text.iso(each.last),
        "last_step": each.last_step,
        "records": each.records,
        "damaged_frames": each.damaged,
        "unreadable_records": each.unreadable,
    }


def _key(each: KeySummary) -> dict[str, Any]:
    return {
        "count": each.count,
        "last": each.last,
        "last_step": each.last_step,
        "min": each.low,
        "max": each.high,
        "non_finite": each.non_finite,
    }


def _span(each: SpanSummary) -> dict[str, Any]:
    return {
        "count": each.count,
        "errors": each.errors,
        "mean_seconds": each.mean / 1e9,
        "p50_seconds": each.p50 / 1e9,
        "max_seconds": each.longest / 1e9,
    }
