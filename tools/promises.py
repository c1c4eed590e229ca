"""Run what is promised and write docs/promises.md: foreign clients, the documents, attacks, faults.

`python tools/promises.py` runs every suite of the list below, one after the other; `--only WORD` those whose name has
the word, and `--read` none. Each leaves a report in build/promises, and the table is made of these reports alone.
"""

import argparse
import functools
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "build" / "promises"
PAGE = ROOT / "docs" / "promises.md"
CONTRIB = ROOT / ".venv-contrib"
BAD = ("failure", "error", "skipped")
SECONDS = 3600
"""For one suite."""
LIST = """
Foreign clients, unmodified
OpenTelemetry's exporters, and OTLP by hand: dialects/otlp
MLflow's client, and the answers of its server: dialects/mlflow/receiver/test_[cst]*.py
W&B's clients 0.31, 0.18 and 0.15: dialects/wandb/receiver/test_[acdou]*.py
Datadog's client: dialects/datadog
Tinker's client: dialects/tinker
The five documents
Document 000: training/test_seed_000*.py
Document 001: training/test_seed_001*.py training/test_service.py
Document 002: training/test_seed_002*.py
Document 003: training/test_seed_003*.py
Document 004: training/test_seed_004*.py
Attacks
Secrets: model/test_secret_*.py e2e/test_secrets.py
Expressions in linear time: test_patterns.py
Tokens, scopes, origins: hub/test_security.py hub/security
Connections and floods: hub/test_connections.py hub/serving e2e/test_hub_under_attack.py
The price of a request: hub/test_sql_limits.py dialects/wandb/receiver/test_[mqs]*.py fuzz/test_cost.py
Damaged requests: fuzz/test_fuzz.py fuzz/test_mlflow_requests.py dialects/mlflow/receiver/test_re*.py
Kills, outages, faults
A trainer that is killed: e2e/test_sigkill.py e2e/test_disk_full.py e2e/test_closed_descriptors.py
A hub that is killed: hub/test_crashes.py
Hubs and servers of a cluster: hub/cluster
"""
"""A line without a colon is a group; a line with one, a suite and its files below tests."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Some tests under one name."""

    group: str
    name: str
    paths: tuple[str, ...]

    @property
    def report(self) -> Path:
        """The file of its results."""
        return REPORTS / f"{'-'.join(self.name.lower().replace(',', '').replace('&', 'and').split())}.xml"


@dataclass(slots=True)
class Outcome:
    """What a report says: how many cases, how many values they compared, and those that are not green, with reasons."""

    counts: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    red: list[tuple[str, str, str]] = field(default_factory=list)

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.counts + other.counts, self.compared + other.compared, self.red + other.red)


def suites() -> list[Suite]:
    """The suites of the list."""
    found: list[Suite] = []
    group = ""
    for line in LIST.strip().splitlines():
        name, _, globs = line.partition(":")
        if not globs:
            group = name
            continue
        paths = [path for glob in globs.split() for path in sorted((ROOT / "tests").glob(glob))]
        found.append(Suite(group, name, tuple(str(path.relative_to(ROOT)) for path in paths)))
    return found


def run(suite: Suite) -> None:
    """Run a suite in an interpreter of its own; it leaves its report, also of tests that fail."""
    fresh = suite.report.with_suffix(".new")  # one that is broken off leaves the report of the last
    line = [sys.executable, "-m", "pytest", "-n0", "-q", f"--junitxml={fresh}", *suite.paths]
    subprocess.run(line, cwd=ROOT, timeout=SECONDS, check=False)
    if fresh.exists():
        fresh.replace(suite.report)


def read(report: Path) -> Outcome:
    """Read a report of pytest."""
    outcome = Outcome()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = next((part for part in case if part.tag in BAD), None)
        kind = "green" if bad is None else "skipped" if bad.tag == "skipped" else "red"
        outcome.counts[kind] += 1
        outcome.compared += sum(
            int(each.get("value", 0)) for each in case.iter("property") if each.get("name") == "compared"
        )
        if bad is not None:
            name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
            outcome.red.append((kind, name, (bad.get("message") or "").strip().split("\n")[0][:200]))
    return outcome


def passed(report: Path) -> set[str]:
    """The names of the green cases of a report."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if not any(p.tag in BAD for p in case)}


def contrib() -> list[str]:
    """A row for each of OpenTelemetry's own suites of which `python -m tests.contrib` left reports."""
    rows = []
    for report in sorted(CONTRIB.glob("*-sdk.xml")):
        name = report.name.removesuffix("-sdk.xml")
        theirs = passed(report)
        rows.append(f"| {name} | {len(theirs)} | {len(theirs & passed(CONTRIB / f'{name}.xml'))} |")
    return rows


def page(found: dict[Suite, Outcome], not_run: list[str], day: str) -> str:
    """The page of these results."""
    lines = [
        "# What is promised, and what a run of it said",
        "",
        f"Written by `python tools/promises.py` from pytest's reports of {day}, not by hand. *Tried* are the",
        "values and requests of those cases that count them.",
        "",
        "| suite | cases | green | skipped | red | tried | tests |",
        "|---|---|---|---|---|---|---|",
    ]
    group = ""
    for suite, outcome in found.items():
        if suite.group != group:
            group = suite.group
            lines.append(f"| **{group}** | | | | | | |")
        lines.append(_row(suite.name, outcome, ", ".join(f"`{path}`" for path in suite.paths)))
    lines.append(_row("**all**", functools.reduce(Outcome.__add__, found.values(), Outcome()), ""))
    if not_run:
        lines += ["", f"Not run: {', '.join(not_run)}."]
    if red := [f"- {kind}, `{name}`: {why}" for outcome in found.values() for kind, name, why in outcome.red]:
        lines += ["", "## Not green", "", *red]
    if rows := contrib():
        lines += [
            "",
            "## OpenTelemetry's own suites",
            "",
            "Run by `python -m tests.contrib` with its SDK's providers, and with ours.",
        ]
        lines += ["", "| suite | passed with the SDK | and with ours |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _row(name: str, outcome: Outcome, tests: str) -> str:
    counts = outcome.counts
    cells = (
        name,
        counts.total(),
        *(counts[kind] for kind in ("green", "skipped", "red")),
        outcome.compared or "",
        tests,
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Run, write, and return 0 when nothing is red."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="suites whose name has this word")
    parser.add_argument("--read", action="store_true", help="run nothing, read the reports that are there")
    given = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    for suite in suites():
        if not given.read and given.only.lower() in suite.name.lower():
            run(suite)
    found = {suite: read(suite.report) for suite in suites() if suite.report.exists()}
    oldest = min((suite.report.stat().st_mtime for suite in found), default=0.0)
    not_run = [suite.name for suite in suites() if suite not in found]
    PAGE.write_text(page(found, not_run, time.strftime("%Y-%m-%d", time.gmtime(oldest))))
    return int(any(outcome.counts["red"] for outcome in found.values()))


if __name__ == "__main__":
    sys.exit(main())
