"""Small pictures of many runs at once: one metric of each, in a handful of buckets; and which metrics there are."""

from collections.abc import Sequence

from msgspec import Struct

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.tables import NO_STEP


class Spark(Struct, frozen=True):
    """One metric of a run over its ranks: extremes of the finite values in each of a few stretches of steps."""

    run: int
    key: str
    x: list[int]
    low: list[float]
    high: list[float]


class MetricName(Struct, frozen=True):
    """A metric and how many runs have it."""

    key: str
    runs: int


def read_sparks(engine: Engine, runs: Sequence[int], keys: Sequence[str], points: int) -> list[Spark]:
    """Read one line for each run, over all its ranks: the first of `keys` that it has."""
    if not runs or not keys:
        return []
    found = engine.query(
        f"""SELECT run, series, key FROM series WHERE run IN {literal.integers(runs)}
        AND key IN {literal.texts(keys)} ORDER BY run, series LIMIT 1 BY series"""
    )
    having: dict[int, dict[str, list[int]]] = {}
    for run, series, key in found.rows("run", "series", "key"):
        having.setdefault(run, {}).setdefault(key, []).append(series)
    chosen = {run: min(by_key, key=keys.index) for run, by_key in having.items()}
    lines = [series for run, key in chosen.items() for series in having[run][key]]
    return _buckets(engine, chosen, lines, points) if lines else []


def _buckets(engine: Engine, keys: dict[int, str], lines: Sequence[int], points: int) -> list[Spark]:
    among = f"series IN {literal.integers(lines)}"
    ends = engine.query(
        f"""SELECT bitShiftRight(series, 32) AS run, minMerge(first_step) AS low, maxMerge(last_step) AS high
        FROM totals WHERE {among} GROUP BY run ORDER BY run"""
    )
    extents = [
        (run, 0 if low == NO_STEP else low, high)
        for run, low, high in ends.rows("run", "low", "high")
        if high != NO_STEP
    ]
    if not extents:
        return []
    numbers, lows, highs = zip(*extents, strict=True)
    widths = [-(-(high - low + 1) // points) for low, high in zip(lows, highs, strict=True)]
    names, firsts, sizes = (_array(values) for values in (numbers, lows, widths))
    found = engine.query(
        f"""SELECT toInt64(bitShiftRight(series, 32)) AS run,
            intDiv(step - transform(run, {names}, {firsts}, toInt64(0)),
                transform(run, {names}, {sizes}, toInt64(1))) AS bucket, min(step) AS x,
            minIf(value, isFinite(value)) AS low, maxIf(value, isFinite(value)) AS high,
            countIf(isFinite(value)) AS good
        FROM metrics WHERE {among} AND step > {NO_STEP} GROUP BY run, bucket HAVING good > 0 ORDER BY run, bucket"""
    )
    made: dict[int, Spark] = {}
    for run, x, low, high in found.rows("run", "x", "low", "high"):
        spark = made.setdefault(run, Spark(run, keys[run], [], [], []))
        spark.x.append(x)
        spark.low.append(low)
        spark.high.append(high)
    return list(made.values())


def _array(values: Sequence[int]) -> str:
    """Numbers as an array of signed ones."""
    return "[" + ", ".join(f"toInt64({int(value)})" for value in values) + "]"


def metric_names(engine: Engine, runs: Sequence[int] | None = None, limit: int = 2000) -> list[MetricName]:
    """The metrics of some runs, or of all, those of most runs first."""
    among = "1" if runs is None else f"run IN {literal.integers(runs)}" if runs else "0"
    found = engine.query(
        f"""SELECT key, uniqExact(run) AS amount FROM series WHERE {among}
        GROUP BY key ORDER BY amount DESC, key LIMIT {int(limit)}"""
    )
    return [MetricName(key, amount) for key, amount in found.rows("key", "amount")]
