"""The alerts of a run that tell of something wrong, counted by name, attempt and step."""

from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.model.names import SEVERITIES

MOST = 20_000
"""Names and steps that are told apart; the worst and earliest where there are more."""


Alarms = tuple[str, int, int | None, int, int, str, int, tuple[int, ...]]
"""Alerts of one name at one step of one attempt: these three, how many, the worst's severity and message (the first of
them), when the first came, and the ranks."""


def read_alarms(engine: Engine, run: int) -> list[Alarms]:
    """The alerts of a run that are warnings or worse, the worst first."""
    found = engine.query(
        f"""SELECT name, attempt, step, count() AS n, max(severity) AS worst,
            argMax(body, (severity, -time)) AS message, min(time) AS first, arraySort(groupUniqArray(rank)) AS ranks
        FROM alerts WHERE run = {run} AND severity >= {SEVERITIES["WARN"]}
        GROUP BY name, attempt, step ORDER BY worst DESC, first, name LIMIT {MOST}"""
    )
    return [
        (name, attempt, step_of(step), count, worst, message, first, tuple(ranks))
        for name, attempt, step, count, worst, message, first, ranks in found.rows()
    ]
