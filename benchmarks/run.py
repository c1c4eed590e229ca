"""Measure stepscope and its peers in one run, print ratios, and fail when a budget is broken."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a script: its folder is on the path, its package is not
    sys.path[0] = str(ROOT)

from benchmarks import budget, report  # noqa: E402
from benchmarks.results import NO_SUCH_CALL, OURS, Options, Result  # noqa: E402
from benchmarks.subjects import SUBJECTS  # noqa: E402

QUICK = " A quick run: fewer rounds, for trying out."
MEASURES = {
    "import": "import_time",
    "cpu": "cpu",
    "memory": "memory",
    "survivors": "survivors",
    "exit": "exit_time",
    "sinks": "sinks_cost",
    "delivery": "delivery",
    "hub_load": "hub_load",
    "hub_read": "hub_read",
    "hub_ingest": "hub_ingest",
    "hub_idle": "hub_idle",
    "page": "page",
    "beside": "beside",
    "disabled": "disabled",
    "call": "call_cost",
    "thread": "thread_slices",
    "interference": "interference",
}
"""In this order, so that the machine is quietest when it is asked about microseconds."""


def main(argv: list[str] | None = None) -> int:
    """Run the measurements asked for and return the exit status."""
    args = _arguments(argv)
    begun = time.monotonic()

    def progress(text: str) -> None:
        print(f"[{time.monotonic() - begun:6.0f} s] {text}", file=sys.stderr, flush=True)

    names = args.only or list(MEASURES)
    options = Options(quick=args.quick, subjects=_subjects(args.subject))
    results: list[Result] = []
    for name in names:
        results += _module(name).measure(options, progress)
    verdicts = budget.judge((b for b in budget.load(args.budget) if b.measure in names), results)
    _show(names, results, verdicts)
    if args.json:
        args.json.write_text(json.dumps(_everything(results, verdicts), indent=1))
    if args.write:
        _write(args.write, names, results, verdicts, quick=args.quick)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(MEASURES), help="one measurement (repeatable)")
    parser.add_argument("--subject", action="append", choices=list(SUBJECTS), help="ours and this one (repeatable)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for trying out, not for quoting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="refresh the tables of a Markdown page")
    parser.add_argument("--budget", type=Path, default=Path(__file__).with_name("budget.toml"), metavar="FILE")
    args = parser.parse_args(argv)
    if args.write and not args.write.is_file():  # said before the measurements, which take long
        parser.error(f"--write {args.write}: there is no such page")
    return args


def _subjects(chosen: list[str] | None) -> tuple[str, ...]:
    return tuple(name for name in SUBJECTS if not chosen or name in chosen or name == OURS)


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.measures.{MEASURES[name]}")


def _show(names: list[str], results: list[Result], verdicts: list[budget.Verdict]) -> None:
    print(report.machine())
    for name in names:
        mine = [result for result in results if result.measure == name]
        print(f"\n== {name}\n{report.as_text(report.results_table(name, mine))}")
        for result in mine:
            if result.skipped and result.skipped != NO_SUCH_CALL:
                print(f"   SKIPPED {result.case}, {result.subject}: {result.skipped}")
    print(f"\n== budget\n{report.as_text(report.verdict_table(verdicts))}")


def _write(page: Path, names: list[str], results: list[Result], verdicts: list[budget.Verdict], quick: bool) -> None:
    for name in names:
        table = report.results_table(name, [result for result in results if result.measure == name])
        report.write_between(page, name, f"{_module(name).METHOD}\n\n{report.as_markdown(table)}")
    report.write_between(page, "machine", report.machine() + (QUICK if quick else ""))
    if len(names) == len(MEASURES):
        report.write_between(page, "budget", report.as_markdown(report.verdict_table(verdicts)))


def _everything(results: list[Result], verdicts: list[budget.Verdict]) -> dict[str, Any]:
    return {
        "machine": report.machine(),
        "results": [asdict(result) for result in results],
        "budget": [asdict(verdict) for verdict in verdicts],
    }


if __name__ == "__main__":
    sys.exit(main())
