"""Goodput: the share of a run's time for each phase, and its steps and tokens per second."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Param, Reader
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import SeriesRow, find_series, list_runs, span_of
from stepscope.hub.store.schema import NO_STEP
from stepscope.model import names
from stepscope.model.goodput_sums import (
    MAX_WEIGHT,
    TOKEN_KEYS,
    GoodputJson,
    Sums,
    TokenCount,
    bucket_of,
    conclude,
    goodput_json,
)
from stepscope.model.records import MAX_EARLY

_BUCKET_NAME = f"attr_values[indexOf(attr_names, {literal.text(names.ATTR_BUCKET)})]"
_SAMPLED = f"toUInt32OrZero(attr_values[indexOf(attr_names, {literal.text(names.ATTR_SAMPLED)})])"
_WEIGHT = f"toInt64(least(greatest({_SAMPLED}, 1), {MAX_WEIGHT}))"
"""Of how many steps a span is a sample."""
_KNOWN = ", ".join(literal.text(name) for name in names.SPAN_BUCKETS)
_WORDS = ", ".join(literal.text(bucket) for bucket in names.BUCKETS)
_BUCKETED = f"({_BUCKET_NAME} IN ({_WORDS}) OR name IN ({_KNOWN}))"
_OURS = ("stepscope/", "system/")
MAX_TOKENS = 200_000
"""The most points of a token metric that are read in order."""


def read_sums(engine: Engine, run: int) -> Sums:
    """Sum up the times, steps and tokens of a run."""
    sums = read_steps(engine, [run])[run]
    _spans(engine, run, sums)
    catalog = find_series(engine, run)
    users = {number: info for number, info in catalog.items() if not info.key.startswith(_OURS)}
    counting = [number for number, info in users.items() if info.key.rpartition("/")[2] in TOKEN_KEYS]
    if counting:
        _tokens(engine, counting, catalog, sums)
    return sums


def read_steps(engine: Engine, runs: Sequence[int]) -> dict[int, Sums]:
    """Sum up the times and steps of some runs, in a few queries for all of them."""
    made = {run: Sums() for run in runs}
    if not made:
        return {}
    among = f"WHERE run IN {literal.integers(made)}"
    began, extents, series, ends = engine.query_many(
        [
            f"SELECT run, rank, attempt, min(wall_ns) AS a FROM writers {among} GROUP BY run, rank, attempt",
            f"""SELECT run, rank, attempt, min(time) AS a, max(time + duration) AS b,
                countIf(name = {literal.text(names.SPAN_STEP)}) AS n
            FROM spans {among} GROUP BY run, rank, attempt""",
            f"SELECT series, run, key, axis, rank FROM series {among} ORDER BY series LIMIT 1 BY series",
            f"""SELECT run, rank, attempt, min(time) AS a, max(time) AS b FROM lifecycle {among}
            GROUP BY run, rank, attempt""",
        ]
    )
    for run, rank, attempt, at in began.rows():
        if at:
            made[run].reach((rank, attempt), at, at)
    for run, rank, attempt, first, last, steps in extents.rows():
        started = made[run].begun.get((rank, attempt), 0)
        made[run].reach((rank, attempt), started if first < started - MAX_EARLY else first, last)
        made[run].steps[rank, attempt] += steps
    _walk(engine, {number: rest for number, *rest in series.rows()}, made)
    for run, rank, attempt, first, last in ends.rows():
        made[run].reach((rank, attempt), first, last)
    return made


def _walk(engine: Engine, catalog: Mapping[int, Sequence[Any]], made: Mapping[int, Sums]) -> None:
    """Add the times and steps of series, given as run, key, axis and rank by their numbers."""
    if not catalog:
        return
    among = " OR ".join(span_of(run) for run in made)
    if len(catalog) <= 1000:
        among = f"series IN {literal.integers(catalog)}"
    found = engine.query(
        f"""SELECT series, attempt, minMerge(first_step) AS s0, maxMerge(last_step) AS s1,
            minMerge(first_time) AS t0, maxMerge(last_time) AS t1
        FROM totals WHERE {among} GROUP BY series, attempt"""
    )
    for number, attempt, first_step, last_step, first_time, last_time in found.rows():
        if number not in catalog:
            continue
        run, key, axis, rank = catalog[number]
        made[run].reach((rank, attempt), first_time, last_time)
        if not key.startswith(_OURS) and not axis and last_step != NO_STEP:
            made[run].walk((rank, attempt), first_step, last_step)


def _spans(engine: Engine, run: int, sums: Sums) -> None:
    spent, below = engine.query_many(
        [
            f"""SELECT name, {_BUCKET_NAME} AS bucket, sum(duration * {_WEIGHT}) AS total FROM spans
            WHERE run = {run} AND {_BUCKETED} GROUP BY name, bucket""",
            # The direct children of each bucketed span; old servers have problems with joins, but not with this.
            f"""SELECT n AS name, s AS bucket, sum(below * times) AS total FROM
                (SELECT id, max(called) AS n, max(word) AS s, sum(lasted) AS below, max(weight) AS times FROM
                    (SELECT parent_id AS id, '' AS called, '' AS word, duration * {_WEIGHT} AS lasted,
                        toInt64(1) AS weight FROM spans WHERE run = {run} AND {_BUCKETED}
                    UNION ALL
                    SELECT span_id AS id, name AS called, {_BUCKET_NAME} AS word, toInt64(0) AS lasted,
                        {_WEIGHT} AS weight FROM spans WHERE run = {run} AND {_BUCKETED})
                GROUP BY id)
            WHERE n != '' GROUP BY n, s""",
        ]
    )
    for found, sign in ((spent, 1), (below, -1)):
        for name, attribute, lasted in found.rows():
            bucket = bucket_of(name, attribute)
            if bucket is not None:
                sums.spent[bucket, name] += sign * lasted


def _tokens(engine: Engine, counting: list[int], catalog: Mapping[int, SeriesRow], sums: Sums) -> None:
    """Read the token metrics; of a long one only every n-th step is checked for a decrease."""
    among = f"series IN {literal.integers(counting)} AND value = value"
    amounts = engine.query(
        f"""SELECT series, attempt, count() AS n, sum(value) AS total, min(value) AS low, max(value) AS high
        FROM metrics WHERE {among} GROUP BY series, attempt"""
    )
    rows = list(amounts.rows())
    pace = max(n for _, _, n, *_ in rows) // MAX_TOKENS + 1 if rows else 1
    directions = engine.query(
        f"""SELECT series, attempt, arrayCount((a, b) -> b > a, arrayPopBack(course), arrayPopFront(course)) AS rises,
            arrayCount((a, b) -> b < a, arrayPopBack(course), arrayPopFront(course)) AS falls
        FROM (SELECT series, attempt, arrayMap(each -> each.3, arraySort(groupArray((step, time, value)))) AS course
            FROM metrics WHERE {among} AND step % {pace} = 0 GROUP BY series, attempt)"""
    )
    moves = {(series, attempt): (rises, falls) for series, attempt, rises, falls in directions.rows()}
    for series, attempt, n, total, low, high in rows:
        info, (rises, falls) = catalog[series], moves.get((series, attempt), (0, 0))
        count = sums.tokens.setdefault((info.key, (info.rank, attempt)), TokenCount())
        # Series of one key with different attributes are summed; the sum is not a counter.
        count.falls += falls + (count.points > 0)
        count.rises += rises
        count.points, count.total = count.points + n, count.total + total
        count.low, count.high = min(count.low, low), max(count.high, high)


MAX_RUNS = 100


class Rate(TypedDict):
    """The pace of a run."""

    run: str
    steps_per_second: float | None


class RateList(TypedDict):
    """The pace of some runs."""

    rates: list[Rate]


@Endpoint("/api/runs/{run}/goodput", "readGoodput", (RUN,))
def goodput(reader: Reader, given: dict[str, Any]) -> GoodputJson:
    """How the time of a run was spent: seconds and shares by bucket and phase, steps and tokens per second."""
    return goodput_json(given["run"], conclude(read_sums(reader.engine, reader.number(given["run"]))))


@Endpoint("/api/rates", "readRates", (Param("run", "text", "a run", required=True, many=MAX_RUNS),))
def rates(reader: Reader, given: dict[str, Any]) -> RateList:
    """The steps per second of some runs, each over its whole time, as in its goodput."""
    runs = {row.number: row.id for row in list_runs(reader.engine, ids=given["run"], project=reader.project)}
    found = {runs[number]: conclude(sums) for number, sums in read_steps(reader.engine, list(runs)).items()}
    return {"rates": [{"run": run, "steps_per_second": each.steps_per_second} for run, each in found.items()]}
