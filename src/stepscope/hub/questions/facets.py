"""What can be searched for among spans: their names with counts and durations, and the attributes they carry."""

from msgspec import Struct

from stepscope.hub.store.engine import Engine


class NameRow(Struct, frozen=True):
    """A name of spans; durations are in ns."""

    name: str
    count: int
    errors: int
    median: float
    longest: int


def span_names(engine: Engine, run: int | None, *, limit: int = 500) -> list[NameRow]:
    """The names of spans, the most frequent first."""
    where = "1" if run is None else f"run = {int(run)}"
    found = engine.query(
        f"""SELECT name, count() AS n, countIf(status = 2) AS errors, quantile(0.5)(duration) AS median,
            max(duration) AS longest
        FROM spans WHERE {where} GROUP BY name ORDER BY n DESC, name LIMIT {int(limit)}"""
    )
    return [NameRow(*row) for row in found.rows("name", "n", "errors", "median", "longest")]


def attr_names(engine: Engine, run: int | None, *, table: str = "spans", limit: int = 200) -> list[tuple[str, int]]:
    """The attributes of the latest hundred thousand spans or logs, the most frequent first."""
    where = "1" if run is None else f"run = {int(run)}"
    latest = f"SELECT attr_names FROM {table} WHERE {where} ORDER BY time DESC LIMIT 100000"
    found = engine.query(
        f"""SELECT name, count() AS n FROM (SELECT arrayJoin(attr_names) AS name FROM ({latest}))
        GROUP BY name ORDER BY n DESC, name LIMIT {int(limit)}"""
    )
    return list(found.rows("name", "n"))
