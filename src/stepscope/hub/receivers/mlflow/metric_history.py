"""The history of a metric from the hub's store: whole, in pages, or a sample of an interval."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stepscope.hub.receivers.mlflow.mlflow_runs import spell
from stepscope.hub.receivers.mlflow.run_records import MILLION
from stepscope.hub.store import literal
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import run_number

_FARTHEST = 2**40
"""No series has so many values."""
_BY_TIME = "time, step, if(isNaN(value), 0, value)"
_BY_STEP = "step, time, if(isNaN(value), 0, value), isNaN(value)"


class Value(NamedTuple):
    """One value; times in milliseconds."""

    timestamp: int
    step: int
    value: float


def history(engine: Engine, run: str, key: str, most: int | None = None, offset: int = 0) -> list[Value]:
    """Return the values of a metric by time, without duplicates (same time, step and value)."""
    if offset >= _FARTHEST:
        return []
    limit = f"LIMIT {most} OFFSET {offset}" if most is not None else f"LIMIT {2**63 - 1} OFFSET {offset}"
    found = _ask(engine, run, key, f"ORDER BY {_BY_TIME} {limit}")
    return _values(found, range(len(found.array("time")))) if found is not None else []


def _ask(engine: Engine, run: str, key: str, rest: str, where: str = "1") -> Answer | None:
    """Query the values of a metric; None when the run is not in the store."""
    number = run_number(engine, run)
    if number is None:
        return None
    series = f"SELECT series FROM series WHERE run = {number} AND key = {literal.text(key)}"
    return engine.query(f"SELECT DISTINCT step, time, value FROM metrics WHERE series IN ({series}) AND {where} {rest}")


def _values(found: Answer, where: Iterable[int]) -> list[Value]:
    steps, times, values = (found.array(name) for name in ("step", "time", "value"))
    return [Value(int(times[at]) // MILLION, int(steps[at]), float(values[at])) for at in where]


def sample(engine: Engine, run: str, key: str, most: int, steps: tuple[int, int] | None) -> list[Value]:
    """Return at most `most` values by step, evenly spaced, including the first and the last."""
    where = "1" if steps is None else f"step BETWEEN {steps[0]} AND {steps[1]}"
    found = _ask(engine, run, key, f"ORDER BY {_BY_STEP}", where)
    size = len(found.array("time")) if found is not None else 0
    if found is None or size <= most:
        return _values(found, range(size)) if found is not None else []
    share, larger = divmod(size, most)
    starts = [at * share + min(at, larger) for at in range(most - 1)]
    return _values(found, [*starts, size - 1])


def describe(key: str, values: Sequence[Value], run: str = "") -> list[dict[str, Any]]:
    """Return values in MLflow's JSON, with the run id when one is given."""
    named = {"run_id": run} if run else {}
    return [
        {"key": key, "value": spell(each.value), "timestamp": each.timestamp, "step": each.step, **named}
        for each in values
    ]
