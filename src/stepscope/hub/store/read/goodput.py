"""What the spans, points and writers of a run add up to, for its goodput."""

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.keys import read_lines, read_totals
from stepscope.hub.store.tables import NO_STEP
from stepscope.model import names
from stepscope.model.goodput import TOKEN_KEYS, Sums, bucket_of

_SAID = f"attr_values[indexOf(attr_names, {literal.text(names.ATTR_BUCKET)})]"
_KNOWN = ", ".join(literal.text(name) for name in names.SPAN_BUCKETS)
_WORDS = ", ".join(literal.text(bucket) for bucket in names.BUCKETS)
_BUCKETED = f"({_SAID} IN ({_WORDS}) OR name IN ({_KNOWN}))"
_OURS = ("stepscope/", "system/")


def read_sums(engine: Engine, run: int) -> Sums:
    """Add up a run."""
    sums = Sums()
    _spans(engine, run, sums)
    _points(engine, run, sums)
    found = engine.query(
        f"SELECT rank, attempt, min(wall_ns) AS a FROM writers WHERE run = {run} GROUP BY rank, attempt"
    )
    for rank, attempt, began in found.rows():
        if began:
            sums.reach((rank, attempt), began, began)
    found = engine.query(
        f"""SELECT rank, attempt, min(time) AS a, max(time) AS b FROM lifecycle WHERE run = {run}
        GROUP BY rank, attempt"""
    )
    for rank, attempt, began, ended in found.rows():
        sums.reach((rank, attempt), began, ended)
    return sums


def _spans(engine: Engine, run: int, sums: Sums) -> None:
    extents, spent, below = engine.query_many(
        [
            f"""SELECT rank, attempt, min(time) AS a, max(time + duration) AS b,
                countIf(name = {literal.text(names.SPAN_STEP)}) AS n
            FROM spans WHERE run = {run} GROUP BY rank, attempt""",
            f"""SELECT name, {_SAID} AS said, sum(duration) AS total FROM spans
            WHERE run = {run} AND {_BUCKETED} GROUP BY name, said""",
            # What lies right below each bucketed span; old servers have trouble with joins, and none with this.
            f"""SELECT n AS name, s AS said, sum(below) AS total FROM
                (SELECT id, max(called) AS n, max(word) AS s, sum(lasted) AS below FROM
                    (SELECT parent_id AS id, '' AS called, '' AS word, duration AS lasted FROM spans
                        WHERE run = {run} AND {_BUCKETED}
                    UNION ALL
                    SELECT span_id AS id, name AS called, {_SAID} AS word, toInt64(0) AS lasted FROM spans
                        WHERE run = {run} AND {_BUCKETED})
                GROUP BY id)
            WHERE n != '' GROUP BY n, s""",
        ]
    )
    for rank, attempt, began, ended, steps in extents.rows():
        sums.reach((rank, attempt), began, ended)
        sums.steps[rank, attempt] += steps
    for found, sign in ((spent, 1), (below, -1)):
        for name, said, lasted in found.rows():
            bucket = bucket_of(name, said)
            if bucket is not None:
                sums.spent[bucket, name] += sign * lasted


def _points(engine: Engine, run: int, sums: Sums) -> None:
    lines = read_lines(engine, run)
    for total in read_totals(engine, run, lines):
        part = total.line.rank, total.attempt
        sums.reach(part, total.first_time, total.last_time)
        if not total.line.key.startswith(_OURS) and not total.line.axis and total.last_step != NO_STEP:
            sums.walk(part, total.first_step, total.last_step)
    counting = [number for number, line in lines.items() if line.key.rpartition("/")[2] in TOKEN_KEYS]
    if counting:
        among = literal.integers(counting)
        found = engine.query(f"SELECT sum(value) AS s FROM metrics WHERE series IN {among} AND value = value")
        sums.tokens = float(found["s"][0])
