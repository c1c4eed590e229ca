"""Values computed from the points of many runs: the mean of last steps, and one metric where another is best."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.errors import StepscopeError

MAX_POINTS = 50_000_000
"""The most points that one request reads."""
_MAX_SERIES = 4000
"""The most series in one statement, whose length is limited."""
_FEW = 500
"""The catalog of more runs than this is read by key alone."""
_GUESSES = (4, 32, 256)
"""How many times the usual distance of n steps is looked at, before everything is."""
_RUN = "toInt64(bitShiftRight(series, 32))"


class TooManyPoints(StepscopeError):
    """More points would be read than a request may cost."""


@dataclass(slots=True)
class Budget:
    """The points that a request may still read."""

    left: int = field(default_factory=lambda: MAX_POINTS)

    def spend(self, points: int) -> None:
        """Count points that are to be read; TooManyPoints, and none are counted, when fewer are left."""
        if points > self.left:
            rest = f", of which {self.left:,} are left" if self.left < MAX_POINTS else ""
            raise TooManyPoints(
                f"this reads {points:,} points, and a request may read {MAX_POINTS:,}{rest}: "
                "choose fewer runs with a filter"
            )
        self.left -= points


class Reduced(Struct, frozen=True, gc=False):
    """A value computed from the points of a metric; `step` is the last that it is of, None where it has none."""

    key: str
    value: float
    step: int | None
    unit: str = ""


@dataclass(slots=True)
class _Metric:
    """A metric of a run, over its ranks and attempts."""

    key: str
    unit: str = ""
    series: dict[int, str] = field(default_factory=dict)
    """The axis of each."""
    points: int = 0
    longest: int = 0
    """The points of its longest series."""
    first_step: int = 2**62
    last_step: int = NO_STEP


def means_of_last(engine: Engine, keys: Mapping[int, str], steps: int, budget: Budget) -> dict[int, Reduced]:
    """The mean of the finite values of all ranks in the last steps of a metric, by run; `keys` has one for each run.

    At a step that several attempts have, the newest counts.
    """
    metrics = _metrics(engine, keys)
    found: dict[int, Reduced] = {}
    left = metrics
    for factor in (*_GUESSES, None):
        lows = {run: _first_of_last(metric, steps, factor) for run, metric in left.items()}
        budget.spend(sum(_points_from(metric, _rounded(lows[run])) for run, metric in left.items()))
        later: dict[int, _Metric] = {}
        for part in _parts(left):
            for run, mean, good, count, last in _mean_rows(engine, part, lows, steps):
                if count < steps and lows[run] > part[run].first_step:
                    later[run] = part[run]
                elif good:
                    found[run] = Reduced(part[run].key, mean, last, part[run].unit)
        left = later
    return found


def _first_of_last(metric: _Metric, steps: int, factor: int | None) -> int:
    """The step from which on the last ones are looked for."""
    reach = (metric.last_step - metric.first_step + 1) * steps * (factor or 0)
    return metric.first_step if factor is None else max(metric.first_step, metric.last_step - reach // metric.longest)


def _rounded(step: int) -> int:
    """A step that is little earlier, and the same for many."""
    return step - step % (1 << max(0, step.bit_length() - 4)) if step > 0 else step


def _points_from(metric: _Metric, low: int) -> int:
    """How many points a metric has from a step on, at most, where each series has one at a step."""
    return min(metric.points, (metric.last_step - low + 1) * len(metric.series))


def _among_last(part: Mapping[int, _Metric], lows: Mapping[int, int]) -> str:
    """The condition of the last points, in terms of the order of the table, so that no others are read."""
    series: dict[int, list[int]] = {}
    for run, metric in part.items():
        series.setdefault(_rounded(lows[run]), []).extend(metric.series)
    return " OR ".join(f"(series IN {literal.integers(each)} AND step >= {low})" for low, each in series.items())


def _mean_rows(
    engine: Engine, part: Mapping[int, _Metric], lows: Mapping[int, int], steps: int
) -> Iterable[tuple[int, float, int, int, int]]:
    rows = engine.query(
        f"""SELECT run, sum(total) / sum(good) AS mean, sum(good) AS finite, count() AS steps, max(step) AS last FROM (
            SELECT run, step, total, good FROM (
                SELECT {_RUN} AS run, step, attempt, sumIf(value, isFinite(value)) AS total,
                    countIf(isFinite(value)) AS good
                FROM metrics WHERE ({_among_last(part, lows)}) AND step >= {_by_run({run: lows[run] for run in part})}
                GROUP BY run, step, attempt ORDER BY run, step DESC, attempt DESC LIMIT 1 BY run, step)
            ORDER BY run, step DESC LIMIT {int(steps)} BY run)
        GROUP BY run"""
    )
    return rows.rows("run", "mean", "finite", "steps", "last")


def values_at_best(
    engine: Engine, keys: Mapping[int, str], best: Mapping[int, tuple[str, bool]], budget: Budget
) -> dict[int, Reduced]:
    """The value of a metric where another has its lowest, or where that is asked its highest, finite value, by run.

    It is the mean over the ranks, of the newest attempt, at the first such step or at the last one before it that the
    metric has.
    """
    asked, others = _metrics(engine, keys), _metrics(engine, {run: key for run, (key, _) in best.items()})
    budget.spend(sum(metric.points for metric in (*asked.values(), *others.values())))
    found: dict[int, Reduced] = {}
    for part in _parts({run: others[run] for run in others if run in asked}):
        steps = _best_steps(engine, part, {run for run in part if best[run][1]})
        for run in steps:
            shared = set(part[run].series.values())
            asked[run].series = {series: axis for series, axis in asked[run].series.items() if axis in shared}
        having = {run: asked[run] for run in steps if asked[run].series}
        for wanted in _parts(having):
            found |= _values_at(engine, wanted, {run: steps[run] for run in wanted})
    return found


def _best_steps(engine: Engine, part: Mapping[int, _Metric], highest: set[int]) -> dict[int, int]:
    """The first step with the best value of each run."""
    order = f"if(run IN {literal.integers(highest)}, -value, value)" if highest else "value"
    rows = engine.query(
        f"""SELECT run, argMin(step, ({order}, step)) AS at FROM (
            SELECT {_RUN} AS run, step, value FROM metrics
            WHERE {_among(part)} AND step > {NO_STEP} AND isFinite(value))
        GROUP BY run"""
    )
    return dict(rows.rows("run", "at"))


def _values_at(engine: Engine, part: Mapping[int, _Metric], steps: Mapping[int, int]) -> dict[int, Reduced]:
    """The values of metrics at a step of each run, or at the last step before it."""
    places = engine.query(
        f"""SELECT {_RUN} AS run, max(step) AS at FROM metrics
        WHERE {_among(part)} AND step > {NO_STEP} AND step <= {_by_run(steps)} GROUP BY run"""
    )
    at: dict[int, int] = dict(places.rows("run", "at"))
    having = {run: part[run] for run in at}
    if not having:
        return {}
    rows = engine.query(
        f"""SELECT {_RUN} AS run, attempt, avg(value) AS mean FROM metrics
        WHERE {_among(having)} AND step = {_by_run(at)} GROUP BY run, attempt ORDER BY run, attempt"""
    )
    return {run: Reduced(part[run].key, mean, at[run], part[run].unit) for run, mean in rows.rows("run", "mean")}


def _among(part: Mapping[int, _Metric]) -> str:
    return f"series IN {literal.integers(series for metric in part.values() for series in metric.series)}"


def _by_run(values: Mapping[int, int]) -> str:
    """The SQL for a number that each run has."""
    runs, numbers = (", ".join(f"toInt64({each})" for each in side) for side in (values, values.values()))
    return f"transform({_RUN}, [{runs}], [{numbers}], toInt64({NO_STEP}))"


def _parts(metrics: Mapping[int, _Metric]) -> Iterator[dict[int, _Metric]]:
    """The metrics in portions that fit into a statement."""
    part: dict[int, _Metric] = {}
    series = 0
    for run, metric in metrics.items():
        if part and series + len(metric.series) > _MAX_SERIES:
            yield part
            part, series = {}, 0
        part[run] = metric
        series += len(metric.series) + 2  # its places in the arrays of runs
    if part:
        yield part


def _metrics(engine: Engine, keys: Mapping[int, str]) -> dict[int, _Metric]:
    """The metrics of runs that have points with steps."""
    if not keys:
        return {}
    among = f" AND run IN {literal.integers(keys)}" if len(keys) <= _FEW else ""
    rows = engine.query(
        f"SELECT run, series, key, axis, unit FROM series WHERE key IN {literal.texts(set(keys.values()))}{among}"
    )
    made: dict[int, _Metric] = {}
    for run, series, key, axis, unit in rows.rows("run", "series", "key", "axis", "unit"):
        if keys.get(run) == key:
            metric = made.setdefault(run, _Metric(key, unit))
            metric.series[series] = axis
    for part in list(_parts(made)):
        _add_extents(engine, part)
    return {run: metric for run, metric in made.items() if metric.last_step != NO_STEP}


def _add_extents(engine: Engine, part: Mapping[int, _Metric]) -> None:
    rows = engine.query(
        f"""SELECT series, sumMerge(points) AS n, minMerge(first_step) AS low, maxMerge(last_step) AS high
        FROM totals WHERE {_among(part)} GROUP BY series"""
    )
    for series, points, low, high in rows.rows("series", "n", "low", "high"):
        metric = part[series >> 32]
        metric.points += points
        metric.longest = max(metric.longest, points)
        metric.first_step = min(metric.first_step, low if low != NO_STEP else 0)
        metric.last_step = max(metric.last_step, high)
