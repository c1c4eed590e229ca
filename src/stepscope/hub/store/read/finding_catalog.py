"""Stored findings: of one run, counts of all runs, and runs that are not completely diagnosed."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepscope.diagnosis.finding import Finding
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.write.finding_rows import HAS_BAND, HAS_VALUE

_COLUMNS = (
    *("kind", "severity", "text", "step", "last", "ranks", "key", "also", "span", "given", "value", "low", "high"),
    *("expects", "cause", "advice", "symptoms", "time", "attempt", "weight"),
)


class FindingCount(Struct, frozen=True, gc=False):
    """How many findings a run has, and the severity of the worst; empty without any."""

    count: int
    worst: str


def read_findings(engine: Engine, run: int) -> list[Finding]:
    """The findings of a run, in the order in which they began."""
    return findings_of_runs(engine, [run])[run]


def findings_of_runs(engine: Engine, runs: Sequence[int]) -> dict[int, list[Finding]]:
    """The findings of each of some runs, in the order in which they began."""
    among = f"run IN {literal.integers(runs)}"
    stored, rows = engine.query_many(
        [
            f"SELECT run, argMax(found, version) AS n FROM diagnoses WHERE {among} GROUP BY run",
            f"""SELECT run, place, {", ".join(_COLUMNS)} FROM findings WHERE {among}
            ORDER BY run, place, version DESC LIMIT 1 BY run, place""",
        ]
    )
    counts = dict(stored.rows("run", "n"))
    found: dict[int, list[Finding]] = {run: [] for run in runs}
    for run, place, *rest in rows.rows("run", "place", *_COLUMNS):
        if place < counts.get(run, 0):
            found[run].append(_finding(*rest))
    return found


def _finding(
    kind: str, severity: Any, text: str, step: int, last: int, ranks: list[int], key: str, also: list[str], span: str,
    given: int, value: float, low: float, high: float, expects: str, cause: str, advice: str, symptoms: list[str],
    time: int, attempt: int, weight: float,
) -> Finding:  # fmt: skip
    return Finding(
        kind,
        severity,
        text,
        step=step_of(step),
        last=step_of(last),
        ranks=tuple(ranks),
        key=key or None,
        also=tuple(also),
        span=span or None,
        value=value if given & HAS_VALUE else None,
        expected=(low, high) if given & HAS_BAND else None,
        expects=expects,
        cause=cause,
        advice=advice,
        symptoms=tuple(symptoms),
        time=time,
        attempt=attempt,
        weight=weight,
    )


def finding_counts(engine: Engine, run: int | None = None) -> dict[int, FindingCount]:
    """The counts of the runs with findings, or of one, by the number of the run."""
    where = "" if run is None else f"WHERE run = {run}"
    found = engine.query(
        f"""SELECT run, argMax(found, version) AS n, argMax(worst, version) AS severity
        FROM diagnoses {where} GROUP BY run HAVING n > 0"""
    )
    return {run: FindingCount(count, worst) for run, count, worst in found.rows("run", "n", "severity")}


def counted(row: RunRow, count: FindingCount | None) -> RunRow:
    """A run with its finding count."""
    return row if count is None else replace(row, findings=count.count, worst_finding=count.worst)


def undiagnosed(engine: Engine, version: int) -> list[int]:
    """The numbers of runs with records that this version of the diagnosis has not processed, newest first."""
    newest, done = engine.query_many(
        [
            """SELECT run, max(commit) AS newest FROM ledger WHERE run IN (SELECT run FROM runs)
            GROUP BY run ORDER BY newest DESC""",
            "SELECT run, argMax(commit, version) AS reached, argMax(engine, version) AS engine "
            "FROM diagnoses GROUP BY run",
        ]
    )
    reached = {run: commit for run, commit, engine in done.rows("run", "reached", "engine") if engine == version}
    return [run for run, commit in newest.rows("run", "newest") if reached.get(run, -1) < commit]
