"""The nearest steps at which something was wrong: an alert, an error, a value that is not finite."""

from dataclasses import dataclass
from typing import Literal

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.keys import span_of
from stepscope.hub.store.tables import NO_STEP
from stepscope.model.names import SEVERITIES

Reason = Literal["alert", "error log", "failed span", "not finite"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A step and what was wrong there."""

    step: int
    reason: Reason


def nearest_anomalies(engine: Engine, run: int, step: int) -> tuple[Anomaly | None, Anomaly | None]:
    """The last step before one and the first after it at which something was wrong."""
    tables: dict[Reason, str] = {
        "alert": f"alerts WHERE run = {run}",
        "error log": f"logs WHERE run = {run} AND severity >= {SEVERITIES['ERROR']}",
        "failed span": f"spans WHERE run = {run} AND status = 2",
    }
    flagged = _flagged(engine, run)
    if flagged:
        tables["not finite"] = f"metrics WHERE series IN {literal.integers(flagged)} AND NOT isFinite(value)"
    earlier, later = f"step < {int(step)}", f"step > {int(step)}"
    parts = [
        f"""SELECT toUInt8({position}) AS reason, countIf({earlier}) AS some_before, maxIf(step, {earlier}) AS before,
            countIf({later}) AS some_after, minIf(step, {later}) AS after
        FROM {where} AND step > {NO_STEP}"""
        for position, where in enumerate(tables.values())
    ]
    rows = list(engine.query(" UNION ALL ".join(parts)).rows("reason", "some_before", "before", "some_after", "after"))
    reasons = list(tables)
    befores = [Anomaly(before, reasons[reason]) for reason, some, before, _, _ in rows if some]
    afters = [Anomaly(after, reasons[reason]) for reason, _, _, some, after in rows if some]
    return max(befores, key=_step, default=None), min(afters, key=_step, default=None)


def _step(anomaly: Anomaly) -> int:
    return anomaly.step


def _flagged(engine: Engine, run: int) -> list[int]:
    """The series of a run with values that are not finite."""
    found = engine.query(
        f"""SELECT series FROM (SELECT series, groupBitOrMerge(flags) AS flagged FROM totals
        WHERE {span_of(run)} GROUP BY series) WHERE flagged > 0 ORDER BY series"""
    )
    return found["series"]
