"""The nearest steps at which something was wrong: an alert, an error, a value that is not finite."""

from dataclasses import dataclass
from typing import Literal, get_args

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.series_catalog import span_of
from stepscope.hub.store.tables import NO_STEP
from stepscope.model.names import SEVERITIES

Reason = Literal["alert", "failed span", "not finite", "error log"]
"""The first of those that hold at a step is told, whichever way one came to it."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A step, what was wrong there, and in which attempt, the newest where it was so in several."""

    step: int
    reason: Reason
    attempt: int


def nearest_anomalies(engine: Engine, run: int, step: int) -> tuple[Anomaly | None, Anomaly | None]:
    """The last step before one and the first after it at which something was wrong."""
    tables: dict[Reason, str] = {
        "alert": f"alerts WHERE run = {run}",
        "failed span": f"spans WHERE run = {run} AND status = 2",
        "error log": f"logs WHERE run = {run} AND severity >= {SEVERITIES['ERROR']}",
    }
    flagged = _flagged(engine, run)
    if flagged:
        tables["not finite"] = f"metrics WHERE series IN {literal.integers(flagged)} AND NOT isFinite(value)"
    earlier, later = f"step < {int(step)}", f"step > {int(step)}"
    parts = [
        f"""SELECT toUInt8({_REASONS.index(reason)}) AS reason,
            countIf({earlier}) AS some_before, maxIf(step, {earlier}) AS before,
            argMaxIf(attempt, (step, attempt), {earlier}) AS before_in,
            countIf({later}) AS some_after, minIf(step, {later}) AS after,
            argMinIf(attempt, (step, -toInt32(attempt)), {later}) AS after_in
        FROM {where} AND step > {NO_STEP}"""
        for reason, where in tables.items()
    ]
    rows = sorted(engine.query(" UNION ALL ".join(parts)).rows())
    befores = [Anomaly(before, _REASONS[reason], attempt) for reason, some, before, attempt, *_ in rows if some]
    afters = [Anomaly(after, _REASONS[reason], attempt) for reason, *_, some, after, attempt in rows if some]
    # Of several at one step the first is taken: they are in the order of their reasons.
    return max(befores, key=_step, default=None), min(afters, key=_step, default=None)


_REASONS: tuple[Reason, ...] = get_args(Reason)


def _step(anomaly: Anomaly) -> int:
    return anomaly.step


def _flagged(engine: Engine, run: int) -> list[int]:
    """The series of a run with values that are not finite."""
    found = engine.query(
        f"""SELECT series FROM (SELECT series, groupBitOrMerge(flags) AS flagged FROM totals
        WHERE {span_of(run)} GROUP BY series) WHERE flagged > 0 ORDER BY series"""
    )
    return found["series"]
