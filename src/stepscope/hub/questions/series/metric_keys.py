"""The metrics of runs: those of one run with extent and extremes, what a short name means, and sparklines."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from math import inf, isfinite, isnan
from operator import or_
from typing import Annotated, Any, TypedDict

from msgspec import Meta, structs

from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Param, Reader, seconds
from stepscope.hub.refusals import not_found
from stepscope.hub.store import attrs, literal
from stepscope.hub.store.columns import exact_number, is_large
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import (
    SeriesRow,
    Total,
    find_series,
    list_runs,
    read_totals,
    run_ids,
    span_of,
    step_of,
)
from stepscope.hub.store.schema import NO_STEP
from stepscope.model import names
from stepscope.model.last_value import MEANING, LastValue, last_of
from stepscope.model.records import Number, Seconds, word
from stepscope.wire.plain import plain

MAX_RUNS = 100
MAX_KEYS = 60
MAX_NAMES = 100_000
"""The most metrics of a run that a name is looked for in."""
_EVALUATION = re.compile(r"(^|[/._-])(eval|evaluator|val|valid|validation|test)([/._-]|$)")
_NOT_TRAINING = re.compile(r"(^|[/._-])(eval|evaluator|val|valid|validation|test|best|min|max|std|grad)([/._-]|$)")
_PATTERNS: dict[str, tuple[re.Pattern[str], ...]] = {
    "loss": (
        re.compile(r"(^|[/._-])loss([/._-](train(ing)?|total|mean))?$"),
        re.compile(r"(^|[/._-])(train(ing)?|total|mean|avg|running|batch|step|lm|ce)[/._-]?loss([/._-](step|epoch))?$"),
        re.compile(r"(^|[/._-])(policy|actor|pg|policy_gradient|value|critic)[/._-]?loss$"),
        re.compile(r"loss"),
        re.compile(r"(^|[/._-])(nll|xent|cross[/._-]?entropy|mse|elbo)$"),
    ),
    "reward": (
        re.compile(r"(^|[/._-])(reward|return)s?$"),
        re.compile(r"(reward|return)s?[/._-]?mean|mean[/._-]?(episode[/._-]?)?(reward|return)"),
        re.compile(r"(ep(isode|isodic)?[/._-]?(rew(ard)?|return))"),
        re.compile(r"reward|return"),
    ),
}
"""Patterns of the keys that training code uses for a well-known metric, the likeliest first."""
WELL_KNOWN = tuple(_PATTERNS)


class MetricExtent(TypedDict):
    """A metric of a run with its extent, extremes and last value, over all its ranks, attempts and attributes."""

    key: str
    name: Annotated[str, Meta(description="The key with its canonical category.")]
    category: str | None
    type: str
    unit: str
    description: str
    axes: list[str]
    ranks: list[int]
    attempts: list[int]
    attrs: list[dict[str, Any]]
    scopes: list[str]
    points: int
    flags: Annotated[int, Meta(description="1 for NaN, 2 for Infinity, 4 for -Infinity, added up.")]
    first_step: int | None
    last_step: int | None
    first_time: Seconds
    last_time: Seconds
    min: float | None
    max: float | None
    last: Annotated[Number | None, Meta(description=MEANING.capitalize() + ".")]


class MetricJson(MetricExtent):
    """A metric of a run."""

    non_finite: Annotated[int, Meta(description="How many values are not finite.")]
    distribution: Annotated[bool, Meta(description="Whether histograms were logged under the name.")]


class MetricList(TypedDict):
    """The metrics of a run by name."""

    keys: list[MetricJson]


class LastJson(TypedDict):
    """The last value of a line, and what it is the mean of."""

    value: Number
    step: int | None
    time: Seconds
    ranks: list[int]
    values: list[Number]


class SparkLine(TypedDict):
    """Finite extremes in a few buckets of steps."""

    key: str
    x: list[int]
    min: list[float]
    max: list[float]


class Spark(SparkLine):
    """The sparkline of a run."""

    run: str


class SparkList(TypedDict):
    """Sparklines of runs."""

    sparks: list[Spark]


@Endpoint("/api/runs/{run}/keys", "listKeys", (RUN,))
def keys(reader: Reader, given: dict[str, Any]) -> MetricList:
    """The metrics of a run with their extent, extremes and last value."""
    return {"keys": list_keys(reader.engine, reader.number(given["run"]))}


def list_keys(engine: Engine, run: int) -> list[MetricJson]:
    """List the metrics of a run by name, each over all its ranks, attempts and attributes."""
    catalog = find_series(engine, run)
    by_key: dict[str, list[Total]] = {}
    numbers, means = exact_totals(engine, read_totals(engine, run, catalog)), _histogram_totals(engine, run, catalog)
    for total in (*numbers, *means):
        by_key.setdefault(total.series.key, []).append(total)
    unknown = {total.series.number for total in means if isnan(total.last)}
    broken = _non_finite(engine, numbers)
    distributions = {total.series.key for total in means}
    return [
        {**_key_json(key, by_key[key], unknown), "non_finite": broken.get(key, 0), "distribution": key in distributions}
        for key in sorted(by_key)
    ]


def _non_finite(engine: Engine, totals: Sequence[Total]) -> dict[str, int]:
    """How many values of each metric are not finite."""
    flagged = {total.series.number: total.series.key for total in totals if total.flags}
    if not flagged:
        return {}
    found = engine.query(
        f"""SELECT series, countIf(NOT isFinite(value)) AS n FROM metrics
        WHERE series IN {literal.integers(flagged)} GROUP BY series"""
    )
    counts: dict[str, int] = {}
    for number, n in found.rows("series", "n"):
        counts[flagged[number]] = counts.get(flagged[number], 0) + n
    return counts


def _key_json(key: str, totals: Sequence[Total], unknown: Collection[int]) -> MetricExtent:
    """A metric of a run; the series in `unknown` have no last value, being distributions without a sum."""
    newest = max(totals, key=lambda total: (total.attempt, total.last_step, total.last_time))
    name = names.canonical_key(key)
    return {
        "key": key,
        "name": name,
        "category": name.partition("/")[0] if "/" in name else None,
        "type": newest.series.type or "step",
        "unit": newest.series.unit,
        "description": newest.series.description,
        "axes": sorted({total.series.axis for total in totals}),
        "ranks": sorted({total.series.rank for total in totals}),
        "attempts": sorted({total.attempt for total in totals}),
        "attrs": plain(list({attrs.as_json(total.series.attrs): total.series.attrs for total in totals}.values())),
        "scopes": sorted({total.series.scope for total in totals}),
        "points": sum(total.points for total in totals),
        "flags": reduce(or_, (total.flags for total in totals)),
        "first_step": step_of(min(total.first_step for total in totals)),
        "last_step": step_of(max(total.last_step for total in totals)),
        "first_time": seconds(min(total.first_time for total in totals)),
        "last_time": seconds(max(total.last_time for total in totals)),
        "min": low if isfinite(low := min(total.low for total in totals)) else None,
        "max": high if isfinite(high := max(total.high for total in totals)) else None,
        "last": None if (last := _last(totals, unknown).value) is None else word(last),
    }


def _last(totals: Sequence[Total], unknown: Collection[int] = ()) -> LastValue:
    known = (total for total in totals if total.series.number not in unknown)
    return last_of(
        (total.last, total.series.rank, total.attempt, step_of(total.last_step), total.last_time) for total in known
    )


def last_json(totals: Sequence[Total]) -> LastJson | None:
    """The last value of a line, and what it is the mean of; None without points."""
    last = _last(totals)
    if last.value is None:
        return None
    values = last.by_rank
    return {
        "value": word(last.value),
        "step": last.step,
        "time": seconds(last.time),
        "ranks": list(values),
        "values": [word(value) for value in values.values()],
    }


def _histogram_totals(engine: Engine, run: int, catalog: dict[int, SeriesRow]) -> list[Total]:
    """Distributions as series of their means, where they have a count and a sum."""
    mean = "if(count > 0 AND bitAnd(given, 1) > 0, total / count, nan)"
    found = engine.query(
        f"""SELECT series, attempt, count() AS points, toUInt8(0) AS flags,
            min(step) AS first_step, max(step) AS last_step, min(time) AS first_time, max(time) AS last_time,
            minIf({mean}, isFinite({mean})) AS low, maxIf({mean}, isFinite({mean})) AS high,
            argMax({mean}, (step, time)) AS last, countIf(isFinite({mean})) AS means
        FROM histograms WHERE {span_of(run)} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    rows = (
        [series, *rest, *((low, high) if means else (inf, -inf)), last]
        for series, *rest, low, high, last, means in found.rows()
    )
    return [Total(catalog[series], *rest) for series, *rest in rows if series in catalog]


def exact_totals(engine: Engine, totals: Sequence[Total]) -> list[Total]:
    """Restore the digits of integers beyond 2**53."""
    series = {total.series.number for total in totals if is_large(total.low, total.high, total.last)}
    if not series:
        return list(totals)
    found = engine.query(
        f"""SELECT series, attempt, argMinIf(rest, (value, rest), isFinite(value)) AS low,
            argMaxIf(rest, (value, rest), isFinite(value)) AS high, argMax(rest, (step, time)) AS last
        FROM metrics WHERE series IN {literal.integers(series)} GROUP BY series, attempt"""
    )
    remainders = {(number, attempt): each for number, attempt, *each in found.rows()}
    made = []
    for total in totals:
        low, high, last = remainders.get((total.series.number, total.attempt), (0, 0, 0))
        numbers = {"low": exact_number(total.low, low), "high": exact_number(total.high, high)}
        made.append(structs.replace(total, **numbers, last=exact_number(total.last, last)))
    return made


def metric_names(engine: Engine, runs: Sequence[int] | None = None, limit: int = 2000) -> dict[str, int]:
    """The metrics of some runs, or of all, with the number of runs that have each, the most frequent first."""
    among = "1" if runs is None else f"run IN {literal.integers(runs)}" if runs else "0"
    found = engine.query(
        f"""SELECT key, uniqExact(run) AS amount FROM series WHERE {among}
        GROUP BY key ORDER BY amount DESC, key LIMIT {int(limit)}"""
    )
    return dict(found.rows("key", "amount"))


def compared_names(engine: Engine, keys: Collection[str], runs: Sequence[int] | None = None) -> dict[str, str]:
    """The name under which each key is compared with the keys of other runs.

    It is the key with its canonical category; a key without a category is the trainer's where runs have it there. Keys
    that one run has in two spellings are kept apart.
    """
    canonical = {key: names.canonical_key(key) for key in keys}
    known = set(canonical.values())
    made = {
        key: trainers if (trainers := f"trainer/{name}") in known and "/" not in name else name
        for key, name in canonical.items()
    }
    spelled: dict[str, list[str]] = {}
    for key, name in made.items():
        spelled.setdefault(name, []).append(key)
    several = {key: name for name, keys_of in spelled.items() if len(keys_of) > 1 for key in keys_of}
    if not several:
        return made
    among = "1" if runs is None else f"run IN {literal.integers(runs)}"
    found = engine.query(
        f"""SELECT run, groupUniqArray(key) AS keys FROM series
        WHERE key IN {literal.texts(list(several))} AND {among} GROUP BY run HAVING length(keys) > 1"""
    )
    for of_run in found["keys"]:
        for key in of_run:
            if any(other != key and several[other] == several[key] for other in of_run):
                made[key] = key
    return made


def find_metrics(
    engine: Engine, run: int, wanted: Sequence[str], rank: int | None = None
) -> tuple[list[str], dict[int, SeriesRow]]:
    """The keys of some metrics, named in any spelling of their categories, and their series.

    Refused for a metric that the run does not have, with the nearest that it has.
    """
    catalog = find_series(engine, run, keys=wanted, rank=rank)
    if {*wanted} <= {row.key for row in catalog.values()}:
        return list(dict.fromkeys(wanted)), catalog
    known = metric_names(engine, [run], MAX_NAMES)
    keys = list(dict.fromkeys(_known_key(engine, run, name, known) for name in wanted))
    return keys, find_series(engine, run, keys=keys, rank=rank)


def _known_key(engine: Engine, run: int, name: str, known: Collection[str]) -> str:
    key = names.recorded_key(name, known)
    if key is None:
        shown = [each for each in known if not each.startswith("stepscope/")]
        (id,) = run_ids(engine, {run}).values()
        raise not_found(f"{id} has no metric {name[:200]!r}{hint_of(name, shown)}")
    return key


def unrecorded_keys(engine: Engine, keys: Sequence[str]) -> list[str]:
    """Those of some keys that no run has."""
    if not keys:
        return []
    found = engine.query(f"SELECT DISTINCT key FROM series WHERE key IN {literal.texts(keys)}")
    return [key for key in keys if key not in found["key"]]


def hint_of(name: str, others: Sequence[str]) -> str:
    """The end of an error about an unknown metric: the nearest names, or some of those there are."""
    near = nearest(name, others)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    first = sorted(others)[:3]
    return f"; it has {', '.join(first)}{' ...' * (len(others) > len(first))}" if first else "; it has none"


def nearest(name: str, others: Sequence[str]) -> list[str]:
    """Similar names, compared with and without their category."""
    name = name[:200]
    bare = {other.rpartition("/")[2]: other for other in reversed(others)}
    found = difflib.get_close_matches(name, others, 2, 0.6)
    found += [bare[close] for close in difflib.get_close_matches(name.rpartition("/")[2], bare, 2, 0.6)]
    return list(dict.fromkeys(found))[:2]


def visible_keys(reader: Reader) -> list[str]:
    """The metrics of the runs that the request may see, the most frequent first."""
    mine = None if reader.project is None and reader.only is None else [row.number for row in reader.runs()]
    return [key for key in metric_names(reader.engine, mine) if not key.startswith("stepscope/")]


def matching_keys(name: str, known: Iterable[str]) -> list[str]:
    """The keys that a metric name may stand for, the likeliest first; `known` are all keys there are."""
    found = names.spellings(name)
    recorded = sorted(key for key in known if not key.startswith(("system/", "stepscope/")))
    of_training = [key for key in recorded if _NOT_TRAINING.search(key.lower()) is None]
    of_evaluation = [key for key in recorded if _EVALUATION.search(key.lower()) is not None]
    for keys in (of_training, of_evaluation):  # a run that records only its evaluation is known by that
        for pattern in _PATTERNS.get(name, ()):
            found += [key for key in keys if pattern.search(key.lower())]
    return list(dict.fromkeys(found))[:MAX_KEYS]


def resolve_names(reader: Reader, names: Sequence[str]) -> dict[str, list[str]]:
    """The keys that each metric name may stand for, the likeliest first."""
    known = visible_keys(reader) if any(name in WELL_KNOWN for name in names) else []
    return {name: matching_keys(name, known) for name in names}


@Endpoint(
    "/api/sparks",
    "readSparks",
    (
        Param("run", "text", "a run", required=True, many=MAX_RUNS),
        Param("metric", "text", "the metric; of several, the first that a run has", required=True, many=10),
        Param("points", "integer", "at most this many buckets", default=40, low=1, high=200),
    ),
)
def sparks(reader: Reader, given: dict[str, Any]) -> SparkList:
    """Sparklines: one metric of each run over its ranks, in a few buckets that keep every finite spike."""
    runs = {row.number: row.id for row in list_runs(reader.engine, ids=given["run"], project=reader.project)}
    keys = dict.fromkeys(key for keys in resolve_names(reader, given["metric"]).values() for key in keys)
    found = _sparks(reader.engine, list(runs), list(keys), given["points"])
    return {"sparks": [{"run": runs[run], **spark} for run, spark in found.items()]}


def _sparks(engine: Engine, runs: Sequence[int], keys: Sequence[str], points: int) -> dict[int, SparkLine]:
    """One line for each run, over all its ranks: the first of `keys` that it has."""
    if not runs or not keys:
        return {}
    found = engine.query(
        f"""SELECT run, series, key FROM series WHERE run IN {literal.integers(runs)}
        AND key IN {literal.texts(keys)} ORDER BY run, series LIMIT 1 BY series"""
    )
    having: dict[int, dict[str, list[int]]] = {}
    for run, series, key in found.rows("run", "series", "key"):
        having.setdefault(run, {}).setdefault(key, []).append(series)
    chosen = {run: min(by_key, key=keys.index) for run, by_key in having.items()}
    catalog = [series for run, key in chosen.items() for series in having[run][key]]
    return _spark_buckets(engine, chosen, catalog, points) if catalog else {}


def _spark_buckets(engine: Engine, keys: dict[int, str], catalog: Sequence[int], points: int) -> dict[int, SparkLine]:
    """The finite extremes in a few buckets of steps, by run."""
    among = f"series IN {literal.integers(catalog)}"
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
        return {}
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
    made: dict[int, SparkLine] = {}
    for run, x, low, high in found.rows("run", "x", "low", "high"):
        spark = made.setdefault(run, {"key": keys[run], "x": [], "min": [], "max": []})
        spark["x"].append(x)
        spark["min"].append(low)
        spark["max"].append(high)
    return made


def _array(values: Sequence[int]) -> str:
    """Numbers as an array of Int64."""
    return "[" + ", ".join(f"toInt64({int(value)})" for value in values) + "]"
