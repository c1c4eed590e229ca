"""What a run says: tables for a terminal and for docs/benchmarks.md, written between markers."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from benchmarks.budget import Verdict
from benchmarks.results import NO_SUCH_CALL, OURS, Result
from benchmarks.subjects import SUBJECTS

Table = list[list[str]]
LOAD_AT_START = os.getloadavg()[0]

COLUMNS: dict[str, dict[str, str]] = {
    "call": {
        "p50_us": "p50 µs",
        "mean_us": "mean µs",
        "p99_us": "p99 µs",
        "paced_p50_us": "paced p50 µs",
        "paced_mean_us": "paced mean µs",
    },
    "disabled": {"ns": "ns", "times_empty": "x empty function"},
    "import": {"ms": "best ms", "median_ms": "median ms", "modules": "modules", "rss_mb": "memory MB"},
    "memory": {"peak_mb": "peak growth MB", "rest_mb": "growth at rest MB", "values": "values"},
    "cpu": {"cpu_us": "processor µs per record", "records": "records"},
    "interference": {
        "rounds": "rounds",
        "step_ms": "step ms",
        "mean_pct": "step mean %",
        "op_p50_pct": "operation p50 %",
        "p99_pct": "operation p99 %",
        "cpu_pct": "processor time %",
        "op_p99_ms": "operation p99 ms",
        "step_p95_ms": "step p95 ms",
    },
    "beside": {
        "step_ms": "step ms",
        "mean_pct": "mean %",
        "median_pct": "median %",
        "p99_pct": "p99 %",
        "noise_pct": "noise %",
        "hub_s": "hub s",
    },
    "sinks": {
        "none_us": "no sink, p50 µs",
        "p50_us": "p50 µs",
        "times_none": "x no sink",
        "mean_times_none": "mean, x no sink",
        "control": "control, x no sink",
        "rounds": "rounds",
    },
    "thread": {"slice_ms": "slice ms", "p99_ms": "p99 ms", "longest_ms": "longest ms", "share": "share of a core"},
    "delivery": {
        "per_s": "delivered/s",
        "stored_per_s": "stored/s",
        "us_each": "µs each",
        "shipper_cpu_us": "shipper's processor µs each",
        "peer_cpu_us": "hub's processor µs each",
    },
    "exit": {"process_s": "shipper process, s", "thread_s": "thread, s", "over_s": "beyond the bound, s"},
    "survivors": {
        "kills": "kills",
        "kept": "kept everything old",
        "old_records": "records older than 200 ms",
        "old_lost": "of these lost",
        "oldest_lost_ms": "oldest lost, ms",
    },
    "hub_ingest": {"per_s": "per second", "us_each": "µs each", "items": "items", "bytes_each": "bytes each on disk"},
    "hub_read": {
        "ms": "best ms",
        "median_ms": "median ms",
        "of": "of",
        "shown": "shown",
        "spikes_lost": "spikes lost",
        "kB": "kB",
    },
    "hub_idle": {"cpu_percent": "% of a core", "rss_mb": "memory MB", "ready_s": "ready after s"},
    "page": {
        "requests": "requests",
        "kB": "kB",
        "nodes": "elements",
        "cpu_ms": "processor ms",
        "times": "x one metric",
        "frames": "frames",
        "late": "late",
        "canvases": "canvases",
    },
    "hub_load": {
        "per_s": "per second",
        "sent": "sent",
        "lost": "lost",
        "late_s": "late s",
        "p50_ms": "answer p50 ms",
        "p99_ms": "answer p99 ms",
        "cpu_percent": "% of a core",
    },
}
RATIO_OF = {"call": "p50_us", "import": "ms", "cpu": "cpu_us", "hub_read": "ms"}
_SIGNED = re.compile("_pct$")


def results_table(measure: str, results: list[Result]) -> Table:
    """Lay out one measurement: a row per case and subject, with the ratio to ours where one makes sense."""
    columns = COLUMNS[measure]
    stat = RATIO_OF.get(measure)
    ours = {r.case: r.stats.get(stat or "") for r in results if r.subject == OURS}
    table = [["case", "subject", *columns.values(), *(["x ours"] if stat else [])]]
    for result in results:
        if result.skipped == NO_SUCH_CALL:
            continue
        cells = [number(result.stats.get(name), name) for name in columns] if result.stats else ["-"] * len(columns)
        row = [result.case, result.subject, *cells]
        if stat:
            row.append(_ratio(result.stats.get(stat), ours.get(result.case)))
        table.append(row)
    return table


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """Lay out the budget: ours, the peer, the ratio, the bound, and whether it holds."""
    table = [["promise", "ours", "peer", "its number", "measured", "budget", "holds"]]
    for verdict in verdicts:
        budget = verdict.budget
        stat = budget.of.rsplit("/", 1)[1]
        bound = f">= {budget.at_least:g}x" if budget.at_least is not None else f"<= {budget.at_most:g}"
        measured = "-" if verdict.value is None else f"{verdict.value:.3g}{'x' if budget.at_least else ''}"
        says = "yes" if verdict.ok else ("NO" if verdict.value is not None else "NOT MEASURED")
        peer, theirs = verdict.peer or "-", number(verdict.theirs, stat)
        table.append([budget.says, number(verdict.ours, stat), peer, theirs, measured, bound, says])
    return table


def number(value: float | None, stat: str) -> str:
    """Write a number with about three digits that matter, and its sign where it is a change."""
    if value is None:
        return "-"
    if _SIGNED.search(stat):
        return f"{value:+.2f}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _ratio(value: float | None, ours: float | None) -> str:
    if value is None or not ours or ours <= 0:
        return "-"
    return f"{value / ours:.3g}" if value < 100 * ours else f"{value / ours:,.0f}"


def as_text(table: Table) -> str:
    """Align a table for a terminal."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def as_markdown(table: Table) -> str:
    """Write a table as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]])


def machine() -> str:
    """Describe the machine and the peers' versions without naming the machine."""
    names = {entry.package for entry in SUBJECTS.values() if entry.peer}
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in sorted(names, key=str.lower) if _known(name))
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}; {versions}; "
        f"load {LOAD_AT_START:.1f} at the start."
    )


def _known(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def write_between(path: Path, name: str, text: str) -> bool:
    """Replace what stands between a page's markers `<!-- bench:NAME -->`; False when it has none."""
    page = path.read_text()
    start, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    if start not in page or end not in page:
        return False
    before, rest = page.split(start, 1)
    after = rest.split(end, 1)[1]
    path.write_text(f"{before}{start}\n{text}\n{end}{after}")
    return True
